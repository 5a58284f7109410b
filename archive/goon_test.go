package archive

import (
	"sync/atomic"
	"testing"

	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// Of a source whose books go on nothing is posted: what is missing at the end of the log may come
// yet, and is theirs. Nor is anything posted of another lane of its address, but of others it is.
func TestReplayLeavesOutWhatGoesOn(t *testing.T) {
	dir, err := seglog.Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log, streams := logOf(t, illFolder{dir, &atomic.Int64{}, &atomic.Int64{}, &atomic.Int64{}}, 0, 1, 2, 5, 8, 7)
	for name, c := range map[string]struct {
		account string
		goOn    []string
		missing uint64
		last    uint64 // where the source is then; 0: it is not told
	}{
		"none goes on":          {"a", nil, 3, 8},
		"another goes on":       {"a", []string{"b"}, 3, 8},
		"it goes on":            {"b", []string{"a"}, 0, 0},
		"its account is closed": {"a", []string{"a"}, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := &StartSheet{LogStored: 3, Sheet: ledger.NewSheet(1, 1, []ledger.Port{{ID: c.account}})}
			s.Reach(c.account, []ledger.Position{{Device: 1, Epoch: 1, Last: 2}}, nil)
			last, err := s.Replay(log, streams, nil, c.goOn...)
			if err != nil || last != 6 {
				t.Errorf("the last record is of %d, %v; want 6", last, err)
			}
			if len(s.Sheet.Ports) != 1 || s.Sheet.Ports[0].Frames.Missing != c.missing {
				t.Errorf("%+v; want one account, %d missing", s.Sheet.Ports, c.missing)
			}
			at := find(s.Positions["a"], ledger.Stream{Device: 1, Epoch: 1})
			if (at != nil) != (c.last != 0) || at != nil && at.Last != c.last {
				t.Errorf("the source is at %+v, want %d", at, c.last)
			}
		})
	}
}
