package beat

import (
	"testing"
	"testing/synctest"
	"time"
)

// Whoever begins when: from the second wait on all wake at the same moment, once a period.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		moments := map[time.Time]int{}
		for _, after := range []time.Duration{
			0, 1, 399 * time.Millisecond, 500 * time.Millisecond,
			999 * time.Millisecond,
		} {
			begin := time.Now()
			time.Sleep(after)
			for time.Since(begin) < 3500*time.Millisecond {
				wait := Next(time.Second)
				if wait < 125*time.Millisecond || wait >= 1125*time.Millisecond {
					t.Fatalf("at %v it waits %v", time.Now(), wait)
				}
				time.Sleep(wait)
				if time.Since(begin) > 2*time.Second {
					moments[time.Now().Round(0)]++
				}
			}
			time.Sleep(time.Until(begin.Add(4 * time.Second)))
		}
		for at := range moments {
			if at.Nanosecond() != 0 {
				t.Errorf("a beat at %v", at)
			}
		}
		if len(moments) < 5*2 {
			t.Errorf("%d beats", len(moments))
		}
	})
}

// A clock that runs up to an eighth of the period behind the timer gives no second beat.
func TestEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(999999 * time.Microsecond)
		if wait := Next(time.Second); wait != time.Second+time.Microsecond {
			t.Errorf("a microsecond before the beat it waits %v", wait)
		}
	})
}
