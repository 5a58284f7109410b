package asyncfile

import (
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/uring/uringtest"
)

func TestMain(m *testing.M) { uringtest.Main(m) }

// Where io_uring is refused everything works on the other backends, and the choice says why.
func TestRefusedBySeccomp(t *testing.T) {
	out := uringtest.Refused(t, ".", "-operations", "20000")
	if !strings.Contains(out, "SKIPPED: uring: backend is not available here: io_uring: forbidden to this process") {
		t.Errorf("nothing says what refuses:\n%s", out)
	}
}

func TestRefusedBySysctl(t *testing.T) {
	uringtest.Disabled(t, ".", "-operations", "20000")
}
