package sys

import (
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCallNames: every call has its name, and no other one has it.
func TestCallNames(t *testing.T) {
	for nr, want := range map[uint64]string{
		unix.SYS_READ: "read", unix.SYS_GETPPID: "getppid", unix.SYS_GETUID: "getuid",
		unix.SYS_IO_URING_ENTER: "io_uring_enter", unix.SYS_FUTEX_WAITV: "futex_waitv",
		5000: "call_5000", 1 << 63: "call_9223372036854775808",
	} {
		if got := CallName(nr); got != want {
			t.Errorf("%d is %s, want %s", nr, got, want)
		}
	}
	ranges := map[string][][2]uint64{ // where the kernel's tables have no holes
		"amd64": {{0, 334}, {424, 462}},
		"arm64": {{0, 243}, {260, 293}, {424, 462}},
	}[runtime.GOARCH]
	if ranges == nil {
		t.Skipf("SKIPPED: %s has more calls than are named; run it on amd64 or arm64", runtime.GOARCH)
	}
	names := map[string]uint64{}
	for _, r := range ranges {
		for nr := r[0]; nr <= r[1]; nr++ {
			name := CallName(nr)
			if before, ok := names[name]; ok || strings.HasPrefix(name, "call_") || strings.ToLower(name) != name {
				t.Errorf("%d is %s, as %d", nr, name, before)
			}
			names[name] = nr
		}
	}
}
