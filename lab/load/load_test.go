package load

import (
	"testing"
	"time"
)

// TestScheduleHasNoBursts: who is on time sends at the rate, and who was kept from it does not send
// at once what was due meanwhile.
func TestScheduleHasNoBursts(t *testing.T) {
	const gap, late = 10 * time.Microsecond, 200 * time.Microsecond
	s, sent := schedule{gap: gap, late: late}, 0
	for now := time.Duration(0); now < time.Second; now += 105 * time.Microsecond {
		n := s.due(now)
		if sent += n; n > 11 {
			t.Fatalf("%d are due at %v", n, now)
		}
	}
	if want := int(time.Second / gap); sent < want-11 || sent > want {
		t.Errorf("%d were due in a second, want %d", sent, want)
	}
	if n := s.due(2 * time.Second); n != int(late/gap)+1 {
		t.Errorf("behind a second's stall %d are due at once, want those of %v", n, late)
	}
	if n := s.due(2 * time.Second); n != 0 {
		t.Errorf("%d are due once more", n)
	}
}
