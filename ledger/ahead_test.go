package ledger

import (
	"slices"
	"testing"
)

// What a start that was killed had counted beyond its last number is in one book at a time: in that
// which took it over last, as long as nothing of the device has come.
func TestAheadIsInOneBook(t *testing.T) {
	gap := Gap{From: 12, To: 12}
	books := [2]*Book{NewBook(0), NewBook(0)}
	books[0].Resume(Position{Device: 1, Last: 9, Gaps: []Gap{{From: 3, To: 4}, gap}})
	books[1].Advance(Position{Device: 1, Last: 9})
	for _, to := range []int{1, 0, 1} {
		from, into := books[1-to], books[to]
		ahead := from.Ahead()
		if len(ahead) != 1 || ahead[0].Last != 9 || !slices.Equal(ahead[0].Gaps, []Gap{gap}) {
			t.Fatalf("ahead are %+v", ahead)
		}
		if !into.TakeAhead(ahead[0]) {
			t.Fatal("it is not taken")
		}
		from.LeaveAhead(ahead[0])
		if left := from.Ahead(); len(left) > 0 {
			t.Fatalf("left are %+v", left)
		}
	}
	for i, want := range []uint64{10, 9} { // of 10 to 19
		books[i].Numbered(128, Stream{1, 0}, 20)
		if got := books[i].Frames().Missing; got != want {
			t.Errorf("book %d misses %d, want %d", i, got, want)
		}
		takes := books[i].TakeAhead(Position{Device: 1, Last: 9, Gaps: []Gap{gap}})
		if ahead := books[i].Ahead(); len(ahead) > 0 || takes {
			t.Errorf("something has come, and it gives %+v, or takes what another gives: %v", ahead, takes)
		}
	}
}
