package ledger

import (
	"math/rand/v2"
	"testing"
	"time"
)

// byTime posts frames at times in ms, of a device that sends each second, and returns the book.
func byTime(ms ...int) *Book {
	b := NewBook(0)
	b.Expect(Rhythm{Interval: time.Second, Tolerance: 200 * time.Millisecond, Silence: 10 * time.Second})
	b.Restart(0)
	for _, at := range ms {
		b.At(int64(at) * 1e6)
		b.Plain(8)
		b.Arrived(1, time.Duration(at)*time.Millisecond)
	}
	return b
}

func TestMissingByTime(t *testing.T) {
	for name, c := range map[string]struct {
		at       []int
		missing  uint64
		silences uint64
	}{
		"in time":                   {[]int{5000, 6000, 7000, 8000}, 0, 0},
		"the first one comes late":  {[]int{9500}, 0, 0},
		"late within the tolerance": {[]int{0, 1200, 2000, 3200, 4000}, 0, 0},
		"one":                       {[]int{0, 1000, 3000, 4000}, 1, 0},
		"late beyond the tolerance": {[]int{0, 1700, 3400}, 1, 0}, // two came in 3.4 s
		"late, and in time again":   {[]int{0, 1400, 2400, 3800, 4800}, 0, 0},
		"too slow each time":        {[]int{0, 1400, 2800, 4200, 5600, 7000}, 2, 0},
		"in time on the average":    {[]int{0, 1400, 2000, 3400, 4000, 5400}, 0, 0},
		"late, and then early":      {[]int{0, 1700, 2000, 3000}, 0, 0},
		"three of five":             {[]int{0, 4000, 5000}, 3, 0},
		"held back, then together":  {[]int{0, 3000, 3000, 3000, 4000}, 0, 0},
		"a silence":                 {[]int{0, 1000, 15000, 16000}, 0, 1},
		"a day of silence":          {[]int{0, 86_400_000, 86_401_000}, 0, 1},
		"just no silence":           {[]int{0, 9900}, 9, 0},
	} {
		b := byTime(c.at...)
		if f := b.Frames(); f.MissingByTime != c.missing || b.silences != c.silences {
			t.Errorf("%s: %d missing, %d silences; want %d and %d", name, f.MissingByTime, b.silences, c.missing,
				c.silences)
		}
	}
}

// Frames that are read together after a gap stand for all of it, and a source that is opened anew,
// or was not read, begins anew.
func TestRhythmBeginsAnew(t *testing.T) {
	b := byTime(0, 1000)
	b.Arrived(4, 5*time.Second) // read late
	if n := b.Frames().MissingByTime; n != 0 {
		t.Errorf("%d missing of frames that were read together", n)
	}
	b.Restart(9 * time.Second)
	b.Arrived(1, 14*time.Second)
	if n := b.Frames().MissingByTime; n != 0 || b.silences != 0 {
		t.Errorf("%d missing, %d silences over an opening", n, b.silences)
	}
}

// No jitter within the tolerance ever counts, and each frame that is left out does.
func TestRhythmWithJitter(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		at, left := 0, uint64(0)
		times := []int{0}
		for range 500 {
			at += 1000
			if rng.IntN(10) == 0 && at > 1000 && times[len(times)-1] > at-1500 {
				left++
				continue
			}
			times = append(times, at+rng.IntN(100)) // ±50 ms makes gaps of ±100 ms
		}
		times = append(times, at+1000)
		if n := byTime(times...).Frames().MissingByTime; n != left {
			t.Fatalf("%d missing, want %d", n, left)
		}
	}
}

// A device that keeps its time misses nothing, however its frames are bundled on the way and
// however its clock differs from ours.
func TestRhythmOfAnotherClock(t *testing.T) {
	for _, late := range [][]int{{0, 0, 0, 0}, {1000, 0, 1000, 0}, {0, 300, 0, 300}, {3000, 2000, 1000, 0}} { // ms
		for _, tolerance := range []time.Duration{0, 100, 500} {
			b := NewBook(0)
			b.Expect(Rhythm{Interval: time.Second, Tolerance: tolerance * time.Millisecond, Silence: 10 * time.Second})
			b.Restart(0)
			for n := range 100_000 {
				at := time.Duration(n)*(time.Second+100*time.Microsecond) + time.Duration(late[n%4])*time.Millisecond
				b.Arrived(1, at)
			}
			if n := b.Frames().MissingByTime; n > 0 {
				t.Errorf("late by %v ms, tolerance %v: %d missing", late, tolerance*time.Millisecond, n)
			}
		}
	}
}

// Any number of frames at once stands for any interval.
func TestRhythmHasNoEnd(t *testing.T) {
	b := NewBook(0)
	b.Expect(Rhythm{Interval: 24 * time.Hour, Tolerance: 0, Silence: 720 * time.Hour})
	b.Restart(0)
	b.Arrived(1, 0)
	b.Arrived(1<<40, time.Second)
	b.Arrived(1, 48*time.Hour)
	if n := b.Frames().MissingByTime; n != 1 {
		t.Errorf("%d missing, want 1", n)
	}
}

func TestSilentSince(t *testing.T) {
	b := byTime(0, 1000)
	if at := b.SilentSince(10 * time.Second); at != 0 {
		t.Errorf("silent since %d", at)
	}
	if at := b.SilentSince(11 * time.Second); at != 1e9 {
		t.Errorf("silent since %d, want the time of the last frame", at)
	}
	if n := b.Frames().MissingByTime; n != 0 { // however long it lasts
		t.Errorf("%d missing while it is silent", n)
	}
}

// While bytes come that may be of frames, a source does not fall silent. One that is silent stays
// so until a frame comes.
func TestPartialFramesAreNoSilence(t *testing.T) {
	b := byTime(0, 1000) // silent after 10 s
	b.Partial(9 * time.Second)
	b.Partial(17 * time.Second)
	if at := b.SilentSince(26 * time.Second); at != 0 {
		t.Errorf("silent since %d, and bytes came", at)
	}
	b.Arrived(25, 26*time.Second) // all that was held back
	if f := b.Frames(); b.silences != 0 || f.MissingByTime != 0 {
		t.Errorf("%d silences, %d missing; want none", b.silences, f.MissingByTime)
	}

	b.Partial(40 * time.Second)
	if at := b.SilentSince(40 * time.Second); at != 1e9 {
		t.Errorf("silent since %d, want the time of the last frame", at)
	}
	b.Arrived(1, 41*time.Second)
	if b.silences != 1 {
		t.Errorf("%d silences, want 1", b.silences)
	}

	b.Partial(50 * time.Second)
	b.NoPartial()
	if at := b.SilentSince(51 * time.Second); at == 0 {
		t.Error("noise keeps it from being silent")
	}
	b.Partial(51 * time.Second)
	b.Restart(52 * time.Second)
	if at := b.SilentSince(61 * time.Second); at != 0 {
		t.Errorf("silent since %d, and opened 9 s ago", at)
	}
}
