package loadgen

import "testing"

func TestPolls(t *testing.T) {
	var p polls
	looks := func(waits int, find bool) (n int) {
		for range waits {
			if p.worthIt() {
				n++
				p.ended(find)
			}
		}
		return n
	}
	if n := looks(1000, true); n != 1000 {
		t.Errorf("looked %d times of 1,000 where each look found something", n)
	}
	if n := looks(10000, false); n > 7+10000/mostSkipped {
		t.Errorf("looked %d times of 10,000 in vain", n)
	}
	if looks(mostSkipped+1, true); p.skip != 0 || looks(1000, true) != 1000 {
		t.Error("does not look again where answers come quickly again")
	}
}
