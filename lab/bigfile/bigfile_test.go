package bigfile

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

// TestFits: a quick run has the file of 1 GiB where there is room and time for it.
func TestFits(t *testing.T) {
	for _, c := range []struct {
		free, memory int64
		took         time.Duration
		want         bool
	}{
		{10 << 30, 8 << 30, 400 * time.Millisecond, true},
		{2 << 30, 8 << 30, 400 * time.Millisecond, false},
		{10 << 30, 2 << 30, 400 * time.Millisecond, false},
		{10 << 30, 8 << 30, 3 * time.Second, false},
	} {
		if got := fits(c.free, c.memory, c.took); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestPlaces: no turn reads what the last one has read, nor does another reader of the same turn.
func TestPlaces(t *testing.T) {
	const most = 1 << 40
	seen := map[int64]bool{}
	for range 4 {
		for reader := range 4 {
			seen[places(reader).Int64N(most)] = true
		}
	}
	if len(seen) != 16 {
		t.Errorf("16 readers begin at %d places", len(seen))
	}
}

// TestColdReads: a turn reads as many blocks of a cold file whatever its size allows, and of the
// article's file as many as the article.
func TestColdReads(t *testing.T) {
	for size, want := range map[int64]uint64{16 << 30: 100_000, 1 << 30: 6553, 256 << 20: 1638} {
		if got := ColdReads(size); got != want {
			t.Errorf("of %d bytes %d blocks, want %d", size, got, want)
		}
	}
}

// TestColdTurnsReadTheSame: each way to read a cold file at random reads so many blocks, and says
// how much of the file is cached at its end.
func TestColdTurnsReadTheSame(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, bytes.Repeat([]byte("0123456789abcdef"), 8<<20/16), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Forget(path); err != nil {
		t.Skipf("SKIPPED: a page cache that forgets a file is missing: %v; set TMPDIR to a folder on a disk", err)
	}
	for name, work := range map[string]contestant.Work{
		"seek": SeekAndRead, "plain map": PlainMap, "map": Map.ReadAt, "ReadAt": Std.ReadAt,
	} {
		var out bytes.Buffer
		turn, err := contestant.New([]string{"own", "seconds=10", "state=cold", "file=" + path},
			strings.NewReader("go\n"), &out)
		if err != nil {
			t.Fatal(err)
		}
		if err := work(turn); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, want := range []string{"\nBenchmarkOwn 51 ", " cached_percent", " 8.388608e+06 file_bytes"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in %q", name, want, out.String())
			}
		}
	}
}
