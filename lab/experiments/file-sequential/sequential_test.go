package filesequential

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/lab/bigfile"
	"github.com/tallywheel/tallywheel/lab/contestant"
)

// TestRandomReadsAreAsMany: at random each way reads the same share of the file, so that none finds
// more of it cached by its own reads, and what is cached is said.
func TestRandomReadsAreAsMany(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, bytes.Repeat([]byte("0123456789abcdef"), 8<<20/16), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := bigfile.Forget(path); err != nil {
		t.Skipf("SKIPPED: a page cache that forgets a file is missing: %v; set TMPDIR to a folder on a disk", err)
	}
	for name, b := range map[string]bigfile.Backend{"std": bigfile.Std, "mmap": bigfile.Map} {
		var out bytes.Buffer
		turn, err := contestant.New([]string{"own", "seconds=10", "access=random", "size_mib=8", "file=" + path},
			strings.NewReader("go\n"), &out)
		if err != nil {
			t.Fatal(err)
		}
		if err := inOrder(turn, b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, want := range []string{"\nBenchmarkOwn 51 ", " cached_percent", " file_bytes"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in %q", name, want, out.String())
			}
		}
	}
}
