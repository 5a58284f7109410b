//go:build unix

package recorder

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A log whose newest segment stands in another folder, too, as in a copy made of hard links, is
// told of at the start; an older segment may.
func TestNewestSegmentThatIsSharedIsTold(t *testing.T) {
	_, dir := recordedFor(t, t.TempDir(), 10)
	tells := func() bool {
		t.Helper()
		var said bytes.Buffer
		g := startTelling(t, slog.New(slog.NewTextHandler(&said, nil)), dir, nil, tcp("a"))
		stop(t, g)
		return strings.Contains(said.String(), "has another name, too")
	}
	if tells() {
		t.Error("told of a segment that has one name")
	}
	segs := segments(t, dir)
	newest := segs[len(segs)-1]
	if err := os.Link(newest, filepath.Join(t.TempDir(), filepath.Base(newest))); err != nil {
		t.Fatal(err)
	}
	if !tells() {
		t.Error("not told")
	}
}
