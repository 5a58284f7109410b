package archive

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/ledger"
)

// A history that was cut, also exactly at the end of a line, removed or replaced has lost starts.
// The start that finds it says so in the history, and so do all starts behind it.
func TestHistoryThatIsNotWhatItWas(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, path string, b []byte) error{
		"nothing": func(*testing.T, string, []byte) error { return nil },
		"the last line": func(_ *testing.T, path string, b []byte) error {
			return os.Truncate(path, int64(bytes.LastIndexByte(b[:len(b)-1], '\n')+1))
		},
		"emptied": func(_ *testing.T, path string, _ []byte) error { return os.Truncate(path, 0) },
		"removed": func(_ *testing.T, path string, _ []byte) error { return os.Remove(path) },
		"another of its size": func(_ *testing.T, path string, b []byte) error {
			return os.WriteFile(path, bytes.ReplaceAll(b, []byte(`"a"`), []byte(`"b"`)), 0o600)
		},
		"a longer one": func(_ *testing.T, path string,
			b []byte,
		) error {
			return os.WriteFile(path, append(b, b...)[1:], 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var last StartSheet
			for n := range uint64(3) {
				p := ledger.Port{
					ID: "a", Proof: ledger.ProofNumbers,
					Frames: ledger.Frames{Missing: 1, MissingUnseen: 1},
				}
				last = StartSheet{End: "test", Sheet: ledger.NewSheet(int64(n+2)*1e9, int64(n+1)*1e9, []ledger.Port{p})}
				if err := last.Keep(dir); err != nil {
					t.Fatal(err)
				}
			}
			last.History = mark(t, dir)
			if err := last.Save(dir, true); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, HistoryFile)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := harm(t, path, b); err != nil {
				t.Fatal(err)
			}
			s, err := readStart(filepath.Join(dir, currentFile))
			if err != nil {
				t.Fatal(err)
			}
			gone := s.HistoryGone(dir)
			if (gone != nil) != (name != "nothing") {
				t.Fatalf("it says %+v", gone)
			}
			if gone == nil {
				return
			}
			for _, line := range []*StartSheet{gone, s.RecordsGone()} { // they say nothing, which balances
				b, err := json.Marshal(line)
				if err != nil || !strings.Contains(string(b), `"balanced":true,"ports":[]`) {
					t.Errorf("%s, %v", b, err)
				}
			}
			owed := []*StartSheet{gone, s}
			past, err := PastOf(dir, "", nil, owed)
			if past == nil || !past.Unreadable || past.LostWire.Frames == 0 {
				t.Errorf("before they are kept: %+v, %v", past, err)
			}
			for _, o := range owed {
				if err := o.Keep(dir); err != nil {
					t.Fatal(err)
				}
			}
			past, err = PastOf(dir, "", nil, nil)
			if past == nil || !past.Unreadable || past.LostWire.Frames == 0 {
				t.Errorf("in later starts: %+v, %v", past, err)
			}
		})
	}
}
