package filemisuse

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/tallywheel/tallywheel/lab/bigfile"
)

// TestOneBufferATurn: a pass makes no buffer anew, or the harness would be what calls the
// collector.
func TestOneBufferATurn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, bytes.Repeat([]byte("x"), 4<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, pass := range map[string]bigfile.Pass{
		"read 64 KiB": reads(64 << 10), "bufio": buffered(), "tiny": reads(record),
	} {
		once := func() {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if n, k, err := pass(f); n != 4<<10 || k != 32 || err != nil {
				t.Fatalf("%s: %d bytes, %d records, %v", name, n, k, err)
			}
		}
		once()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		const passes = 100
		for range passes {
			once()
		}
		runtime.ReadMemStats(&after)
		if each := (after.TotalAlloc - before.TotalAlloc) / passes; each > 2<<10 {
			t.Errorf("%s: a pass allocates %d bytes", name, each)
		}
	}
}
