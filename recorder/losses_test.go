package recorder

import (
	"fmt"
	"testing"

	"github.com/tallywheel/tallywheel/ledger"
)

// told is the list, the oldest entry first.
func told(w *lossWatch) (all []string) {
	for _, l := range w.list {
		all = append(all, fmt.Sprintf("%s %s %d %s %s %d-%d", l.Source, l.Where, l.N, l.Unit, l.Cause, l.From/1e9, l.To/1e9))
	}
	return all
}

// account is a port that has lost so many frames by second t.
func account(id string, read, unseen uint64, t int64) ledger.Port {
	return ledger.Port{
		ID: id, Proof: ledger.ProofNumbers, LastLoss: ledger.Time(t * 1e9), Bytes: ledger.Bytes{Read: read},
		Frames: ledger.Frames{Missing: unseen, MissingUnseen: unseen},
	}
}

// The list has each loss once, with the time that the books know; what comes late is taken back,
// and neither new books nor a peer that leaves is a loss.
func TestLossesAreToldOnce(t *testing.T) {
	dropped := account("a", 600, 2, 19)
	dropped.Frames.Dropped = map[string]uint64{"disk_full": 4}
	var w lossWatch
	for _, step := range []struct {
		what  string
		at    int64 // s
		ports []ledger.Port
		want  string
	}{
		{"nothing yet", 1, []ledger.Port{account("a", 100, 0, 0)}, "[]"},
		{"a loss", 11, []ledger.Port{account("a", 200, 3, 10)}, "[a wire 3 frame never seen 10-10]"},
		{"more of it", 12, []ledger.Port{account("a", 300, 5, 12)}, "[a wire 5 frame never seen 10-12]"},
		{"one came late", 13, []ledger.Port{account("a", 400, 4, 12)}, "[a wire 4 frame never seen 10-12]"},
		{"two more did", 14, []ledger.Port{account("a", 500, 2, 12)}, "[a wire 2 frame never seen 10-12]"},
		{"another cause", 20, []ledger.Port{dropped}, "[a wire 2 frame never seen 10-12 a here 4 frame dropped: disk full 19-19]"},
		{
			"new books", 30,
			[]ledger.Port{account("a", 10, 1, 29)},
			"[a wire 2 frame never seen 10-12 a here 4 frame dropped: disk full 19-19 a wire 1 frame never seen 29-29]",
		},
	} {
		w.look(ledger.Sheet{At: ledger.Time(step.at * 1e9), Ports: step.ports})
		if got := fmt.Sprint(told(&w)); got != step.want {
			t.Errorf("%s: %s, want %s", step.what, got, step.want)
		}
	}
}

// What a peer had lost is in the book of its source when it is gone, and no loss of that.
func TestLossesOfAPeerThatLeaves(t *testing.T) {
	var w lossWatch
	w.look(ledger.Sheet{At: 2e9, Ports: []ledger.Port{account("hub", 0, 0, 0), account("hub/10.0.0.7", 100, 3, 1)}})
	w.look(ledger.Sheet{At: 3e9, Ports: []ledger.Port{account("hub", 100, 4, 3)}})
	want := "[hub/10.0.0.7 wire 3 frame never seen 1-1 hub wire 1 frame never seen 3-3]"
	if got := fmt.Sprint(told(&w)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// The list is bounded, and says what it has not kept.
func TestLossesAreBounded(t *testing.T) {
	var w lossWatch
	const pause = 10 // s, longer than a burst's
	for i := range int64(maxLosses + 3) {
		w.look(ledger.Sheet{At: ledger.Time(pause * (i + 1) * 1e9), Ports: []ledger.Port{account("a", 1, uint64(i+1), pause*(i+1)-1)}})
	}
	if len(w.list) != maxLosses || w.forgotten != 3 {
		t.Errorf("%d entries, %d forgotten; want %d and 3", len(w.list), w.forgotten, maxLosses)
	}
}
