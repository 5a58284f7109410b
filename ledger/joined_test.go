package ledger

import "testing"

// A device that is new behind a kill, and not at its first number, is counted: once, and no frame
// of it as missing. One that is known, or begins with 0, is not; nor is any in a book that has
// nothing to distrust.
func TestJoined(t *testing.T) {
	for _, distrusts := range []bool{true, false} {
		b := NewBook(0)
		b.Resume(Position{Device: 1, Epoch: 1, Last: 41})
		if distrusts {
			b.Distrust()
		}
		for _, f := range []struct {
			device, epoch uint32
			number        uint64
		}{{1, 1, 42}, {2, 1, 0}, {2, 1, 1}, {3, 1, 100}, {3, 1, 101}, {3, 2, 7}, {1, 2, 5}} {
			b.Numbered(10, Stream{f.device, f.epoch}, f.number)
		}
		want := uint64(0)
		if distrusts {
			want = 1
		}
		if f := b.Frames(); f.Joined != want || f.Missing != 12 {
			t.Errorf("distrusts %v: %d joined, want %d; %d missing, want 12, of the epochs that began under our eyes",
				distrusts, f.Joined, want, f.Missing)
		}
	}
}
