package e2e

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// namesFile is a system call that gives what was written its name.
var namesFile = regexp.MustCompile(`rename\w*\(.*"[^"]*/([^"/]+)\.part".*"[^"]*/([^"/]+)"`)

// TestFilesAreSyncedBeforeTheyHaveTheirNames: some file systems, XFS among them, give the name of a
// file that was not synced to an empty one when the power is cut. Each of the files beside the log
// is synced first, each time: the sheet, which is renewed every second, above all.
func TestFilesAreSyncedBeforeTheyHaveTheirNames(t *testing.T) {
	strace := testenv.Program(t, "strace", "apt install strace")
	if out, err := exec.Command(strace, "-f", "-o", "/dev/null", "true").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: strace may not trace here: %v: %s; run as root, or allow ptrace", err, out)
	}
	dir := t.TempDir()
	port, err := net.Listen("tcp", "127.0.0.1:0") // the device
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	trace := filepath.Join(dir, "trace")
	r := startRecorderBy(t, []string{
		strace, "-D", "-f", "-y", "-qq", "-s", "4096", "-o", trace, "-e",
		"trace=fsync,fdatasync,rename,renameat,renameat2",
	}, dir, fmt.Sprintf("  - {id: a, tcp: {dial: %q}, frame: line}\n", port.Addr()))
	c, err := port.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for n := range uint64(3) { // each makes the sheet another one
		if _, err := c.Write([]byte("a line\n")); err != nil {
			t.Fatal(err)
		}
		testenv.Until(t, time.Minute, "the sheet on disk has the line", func() bool {
			b, err := os.ReadFile(filepath.Join(dir, "data", "sheet.json"))
			return err == nil && strings.Contains(string(b), fmt.Sprintf(`"ok":%d,`, n+1))
		})
	}
	if err := r.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := r.Cmd.Wait(); err != nil {
		t.Fatalf("run ended with %v; stderr: %s", err, r.Err)
	}
	named := map[string]int{}
	testenv.Until(t, time.Minute, "the trace has the last sheet", func() bool {
		named = syncedNames(t, trace)
		return named["sheet.json"] >= 4
	})
	if named["streams.json"] == 0 {
		t.Errorf("the trace has %v; want the table of streams, too", named)
	}
}

// syncedNames counts, by name, how often a trace has a file beside the log get its name, and fails
// the test where that was not synced since its last name.
func syncedNames(t *testing.T, trace string) map[string]int {
	t.Helper()
	f, err := os.Open(trace)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	named, synced := map[string]int{}, map[string]bool{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if m := namesFile.FindStringSubmatch(line); m != nil && strings.HasSuffix(m[2], ".json") {
			if !synced[m[1]] {
				t.Errorf("%s gets its name and was not synced: %s", m[2], line)
			}
			synced[m[1]] = false
			named[m[2]]++
		} else if _, after, ok := strings.Cut(line, "sync("); ok && strings.Contains(after, ".part>") {
			path, _, _ := strings.Cut(after, ".part>")
			synced[path[strings.LastIndex(path, "/")+1:]] = true
		}
	}
	return named
}
