// Package uringtest runs tests as if io_uring were refused: by a seccomp filter, as in most
// containers, or by the sysctl.
package uringtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refuseEnv is set in the processes that Refused and Disabled start: "seccomp" tells them to refuse
// io_uring to themselves.
const refuseEnv = "TALLYWHEEL_REFUSE_URING"

// Main is for TestMain: in a process that Refused started it refuses io_uring before any test runs.
func Main(m *testing.M) {
	Prepare()
	os.Exit(m.Run())
}

// Prepare is Main for a TestMain that runs the tests by other means.
func Prepare() {
	if os.Getenv(refuseEnv) == "seccomp" {
		if err := Refuse(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// Refuse makes the kernel answer EPERM to io_uring's system calls, in all threads of this process
// and for good.
func Refuse() error {
	ret := func(v uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: v} }
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: unix.SYS_IO_URING_SETUP, Jf: 2},
		{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, K: unix.SYS_IO_URING_REGISTER, Jt: 1},
		ret(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)),
		ret(unix.SECCOMP_RET_ALLOW),
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("refuse io_uring: no_new_privs: %w", err)
	}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&prog)))
	if e != 0 {
		return fmt.Errorf("refuse io_uring: seccomp: %w", e)
	}
	return nil
}

// Refused runs the tests of this package that match the pattern in a process to which io_uring is
// refused by seccomp. They must pass; what they print is returned.
func Refused(t *testing.T, pattern string, args ...string) string {
	t.Helper()
	return run(t, pattern, args, "seccomp")
}

// Disabled is Refused by kernel.io_uring_disabled=2, where the test may set it; it is set back
// afterwards. It skips, aloud, where it may not: other programs of the machine would be refused,
// too, so TALLYWHEEL_SYSCTL must say that it may.
func Disabled(t *testing.T, pattern string, args ...string) string {
	t.Helper()
	const path = "/proc/sys/kernel/io_uring_disabled"
	if os.Getenv("TALLYWHEEL_SYSCTL") == "" || os.Getenv(refuseEnv) != "" {
		t.Skipf("SKIPPED: setting %s concerns the whole machine; TALLYWHEEL_SYSCTL=1 allows it", path)
	}
	old, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte("2"), 0)
	}
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	defer func() {
		if err := os.WriteFile(path, old, 0); err != nil {
			t.Errorf("set back: %v", err)
		}
	}()
	return run(t, pattern, args, "sysctl")
}

func run(t *testing.T, pattern string, args []string, how string) string {
	t.Helper()
	if os.Getenv(refuseEnv) != "" {
		t.Skip("SKIPPED: this process is one to which io_uring is refused; the test runs in the one that started it")
	}
	c := exec.Command(os.Args[0], append([]string{"-test.v", "-test.short", "-test.run", pattern}, args...)...)
	c.Env = append(os.Environ(), refuseEnv+"="+how)
	out, err := c.CombinedOutput()
	if errors.Is(err, unix.ENOEXEC) {
		t.Skipf("SKIPPED: this test runs under an emulator, which cannot start it again: %v", err)
	}
	if err != nil || !strings.Contains(string(out), "\nPASS") {
		t.Fatalf("where io_uring is refused: %v\n%s", err, out)
	}
	return string(out)
}
