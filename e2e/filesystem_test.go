package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// TestPowerCutOfAFileSystem cuts real file systems off under a recorder, again and again. XFS gives
// a file that was renamed before it was synced its name, and no bytes. Each start must read what
// the one before it left, and have every record that was durable.
func TestPowerCutOfAFileSystem(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: a power cut needs a file system of its own; run without -short")
	}
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: mounting needs root; run as root")
	}
	io := testenv.Program(t, "xfs_io", "apt install xfsprogs")
	for fs, pack := range map[string]string{"xfs": "xfsprogs", "ext4": "e2fsprogs"} {
		t.Run(fs, func(t *testing.T) {
			dir := t.TempDir()
			image, mnt := dir+"/image", dir+"/mnt"
			if err := os.WriteFile(image, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(image, 400<<20); err != nil { // XFS takes no less than 300 MB
				t.Fatal(err)
			}
			tool(t, testenv.Program(t, "mkfs."+fs, "apt install "+pack), "-q", image)
			if err := os.Mkdir(mnt, 0o700); err != nil {
				t.Fatal(err)
			}
			mount := func() { tool(t, "mount", "-t", fs, "-o", "loop", image, mnt) }
			if kinds, err := os.ReadFile("/proc/filesystems"); err != nil ||
				!strings.Contains(string(kinds), "\t"+fs+"\n") {
				if exec.Command("modprobe", fs).Run() != nil {
					t.Skipf("SKIPPED: this kernel has no %s; run on one that has it", fs)
				}
			}
			mount()
			t.Cleanup(func() { _ = syscall.Unmount(mnt, syscall.MNT_DETACH) })
			device := feedLines(t)
			var durable uint64 // before the cut
			for cut := range 4 {
				r := startRecorder(t, mnt, fmt.Sprintf("  - {id: a, tcp: {dial: %q}, frame: line}\n", device))
				testenv.Until(t, time.Minute, "the log's state",
					func() bool { return r.status(t).Sample.Log.Stored > 0 })
				begin := r.status(t).Sample.Log.Stored
				if begin < durable {
					t.Fatalf("cut %d: %d records were durable, %d are there", cut, durable, begin)
				}
				testenv.Until(t, time.Minute, "the log has gone through segments; stderr: "+r.Err.String(),
					func() bool {
						durable = r.status(t).Sample.Log.Durable
						return durable > begin+200_000
					})
				// nothing more comes to the disk, as when the power is cut
				tool(t, io, "-x", "-F", "-c", "shutdown", mnt)
				if err := r.Cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				_ = r.Cmd.Wait() // it was killed
				testenv.Until(t, time.Minute, "nobody uses "+mnt, func() bool { return syscall.Unmount(mnt, 0) == nil })
				// A mount namespace that began meanwhile has the mount, too: mounted again, it
				// would be that one, which takes nothing more.
				testenv.Until(t, 3*time.Minute, "no mount namespace has "+image,
					func() bool { return !isLoop(t, image) })
				mount()
				for _, name := range []string{"sheet.json", "streams.json", "streams.json.copy"} {
					if i, err := os.Stat(filepath.Join(mnt, "data", name)); err != nil || i.Size() == 0 {
						t.Errorf("cut %d: %s: %v, %v", cut, name, i, err)
					}
				}
			}
			r := startRecorder(t, mnt, "  - {id: a, tcp: {dial: 127.0.0.1:1}, frame: line}\n")
			r.stop(t)
			command(t, "log", "verify", "--dir", mnt+"/data")
		})
	}
}

// isLoop reports whether a loop device has the image.
func isLoop(t *testing.T, image string) bool {
	t.Helper()
	devices, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(devices, func(device string) bool {
		name, err := os.ReadFile(device) // an error: it was let go meanwhile
		return err == nil && strings.TrimSpace(string(name)) == image
	})
}

// feedLines is a device that sends lines as fast as they are taken to whoever connects.
func feedLines(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for n := 0; ; n++ {
					if _, err := fmt.Fprintf(c, "line %d of a device that has much to say\n", n); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}
