package seglog

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Variables that make TestCheckDirAs look at a folder, and mount a file system there first, which
// only that process sees.
const (
	checkVariable = "TALLYWHEEL_SEGLOG_CHECK"
	mountVariable = "TALLYWHEEL_SEGLOG_MOUNT"
)

// TestCheckDirAs is not a test: it says what CheckDir and Dir do for the user that it runs as.
func TestCheckDirAs(t *testing.T) {
	path := os.Getenv(checkVariable)
	if path == "" {
		return // another test runs it
	}
	if os.Getenv(mountVariable) != "" {
		if err := syscall.Mount("none", path, "tmpfs", syscall.MS_RDONLY, ""); err != nil {
			t.Fatalf("cannot mount: %v", err)
		}
	}
	t.Logf("CheckDir: %v", CheckDir(path))
	t.Logf("CheckDir below: %v", CheckDir(filepath.Join(path, "below")))
	if _, err := Dir(filepath.Join(path, "below")); err == nil {
		t.Log("Dir makes it")
	} else {
		t.Logf("Dir: %v", err)
	}
}

// A folder that may not be written to is told, with what to do: also to those whom root has
// started, for what counts is who they are now.
func TestCheckDirOfAFolderOfOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestCheckDirAs$", "-test.v")
	perm := os.FileMode(0o555)
	if os.Geteuid() == 0 { // whom permissions do not concern
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		for at := filepath.Dir(path); strings.HasPrefix(at, os.TempDir()) && at != os.TempDir(); at = filepath.Dir(at) {
			if err := os.Chmod(at, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		perm = 0o755
	}
	if err := os.Mkdir(path, perm); err != nil {
		t.Fatal(err)
	}
	cmd.Dir, cmd.Env = "/", append(os.Environ(), checkVariable+"="+path)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{
		" may not write in " + path + ": run this as its owner",
		"Dir: mkdir " + path + "/below: permission denied: make the folder",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("want %q in:\n%s", want, out)
		}
	}
}

// So is a file system that is mounted read-only, for a folder that is to be made in it, too.
func TestCheckDirOfAReadOnlyFileSystem(t *testing.T) {
	path := t.TempDir()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestCheckDirAs$", "-test.v")
	cmd.Env = append(os.Environ(), checkVariable+"="+path, mountVariable+"=yes")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if err != nil && (len(out) == 0 || strings.Contains(string(out), "cannot mount")) {
		t.Skipf("SKIPPED: no namespace of users to mount in (%v); allow them: sysctl kernel.unprivileged_userns_clone=1", err)
	}
	const want = " is on a file system that is mounted read-only: mount it for writing, or name another folder"
	for _, what := range []string{"CheckDir: ", "CheckDir below: "} {
		if !strings.Contains(string(out), what+path+want) {
			t.Errorf("%swant %q in:\n%s", what, path+want, out)
		}
	}
}
