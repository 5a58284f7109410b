package archive

import (
	"testing"

	"github.com/tallywheel/tallywheel/ledger"
)

// TestBooksOfPeers: a sheet says of a peer both which book it is of, and which its source has.
func TestBooksOfPeers(t *testing.T) {
	var s StartSheet
	s.Sheet.Ports = []ledger.Port{{ID: "net", Book: 5}, {ID: "net/127.0.0.2", Book: 2, Hub: 5}}
	s.Sheet.Leaving = []ledger.Port{{ID: "net/127.0.0.2", Book: 7, Hub: 4}}
	s.NumberAccounts()
	for _, own := range []bool{true, false} {
		if !own { // as programs before wrote it
			s.Own = nil
		}
		for _, p := range s.accounts() {
			p.Book, p.Hub = 0, 0
		}
		s.tellBooks()
		want := [][2]uint64{{5, 0}, {2, 5}, {7, 4}}
		for i, p := range s.accounts() {
			if !own && p.Hub != 0 {
				want[i][0] = want[i][1]
			}
			if got := [2]uint64{p.Book, p.Hub}; got != want[i] {
				t.Errorf("%s: book and that of its source %v, want %v", p.ID, got, want[i])
			}
		}
	}
}
