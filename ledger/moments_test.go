package ledger

import (
	"testing"
	"time"
)

// What comes late takes its moment with it: the last loss is the last one of what is still lost, as
// of frames by their numbers, by their time, and of answers.
func TestLastLossGoesBackWithWhatComesLate(t *testing.T) {
	b := NewBook(0)
	b.Expect(Rhythm{Interval: time.Second})
	post := func(second int64, numbers ...uint64) {
		b.At(second * 1e9)
		for _, n := range numbers {
			b.Numbered(128, Stream{1, 1}, n)
		}
	}
	last := func(of string, want int64) {
		t.Helper()
		if got := b.LastLoss() / 1e9; got != want {
			t.Errorf("%s: the last loss is at %d, want %d", of, got, want)
		}
	}
	post(1, 1, 2, 3)
	last("nothing", 0)
	post(5, 6, 7)
	last("4 and 5 are missing", 5)
	post(13, 9)
	last("so is 8", 13)
	post(15, 8)
	last("8 came late", 5)
	post(16, 13)
	last("10 to 12 are missing", 16)
	post(17, 11)
	last("11 came late", 16)
	post(18, 10, 12)
	last("so did the others", 5)

	b.Arrived(1, 0)
	b.At(20e9)
	b.Arrived(1, 2*time.Second)
	last("one did not come in time", 20)
	b.At(21e9)
	b.Arrived(2, 3*time.Second)
	last("it came then", 5)

	b.At(22e9)
	b.Asked(0)
	b.Overdue(5*time.Second, time.Second)
	last("a request is not answered", 22)
	b.Answered()
	last("it is", 5)

	b.At(23e9)
	b.Drop("overflow", 1)
	last("one was dropped", 23)
	post(24, 15, 14, 4, 5)
	last("all the others came", 23)
}

// Where the clock is set back, what was lost before has no later time than what is lost then, and
// still takes its moment with it if it comes.
func TestLastLossBehindAClockThatIsSetBack(t *testing.T) {
	b := NewBook(0)
	for _, at := range []int64{100, 200} {
		b.At(at)
		b.Numbered(128, Stream{1, 1}, uint64(at))
	}
	b.Overrun()
	b.At(300)
	b.Numbered(128, Stream{1, 1}, 202)
	b.SetBack(50)
	if got := b.LastLoss(); got != 50 {
		t.Errorf("the last loss is at %d, and the clock shows 50", got)
	}
	b.At(60)
	b.Numbered(128, Stream{1, 1}, 204)
	if got := b.LastLoss(); got != 60 {
		t.Errorf("203 is missing since 60; the last loss is at %d", got)
	}
	if b.Numbered(128, Stream{1, 1}, 203); b.LastLoss() != 50 {
		t.Errorf("203 came late; the last loss is at %d", b.LastLoss())
	}
	b.SetBack(70)
	if b.LastLoss() != 50 {
		t.Errorf("the clock was set back to behind the last loss, which is at %d", b.LastLoss())
	}
}

// What a source lost that left before the clock was set back was lost by then, in the start that
// goes on and in its last sheet. That of an earlier start is by the clock of then.
func TestLastLossOfAPartBehindAClockThatIsSetBack(t *testing.T) {
	sheet := func(at, lastLoss Time, steps ...ClockStep) *Sheet {
		p := Port{ID: "a", Proof: ProofNumbers, Heard: true, LastLoss: lastLoss}
		if lastLoss > 0 {
			p.Frames.Missing, p.Frames.MissingUnseen = 2, 2
		}
		s := NewSheet(int64(at), 100, []Port{p})
		if steps != nil {
			s.Clock = &Clock{Steps: steps}
		}
		return &s
	}
	back := []ClockStep{{At: 120, By: -500}, {At: 150, By: -60}, {At: 170, By: 5}}
	for name, c := range map[string]struct {
		whole *Sheet
		want  Time
	}{
		"nothing since":        {sheet(190, 0, back...), 150},
		"more since":           {sheet(190, 180, back...), 180},
		"the clock is there":   {sheet(300, 180, back...), 205},
		"it was not set":       {sheet(190, 180), 205},
		"it was set on":        {sheet(190, 180, back[2]), 205},
		"… and back, before":   {sheet(190, 0, ClockStep{At: 150, By: -60, Between: true}), 205},
		"a step in the future": {sheet(190, 0, ClockStep{At: 250, By: -60}), 205},
	} {
		var p Past
		p.Add(sheet(206, 205))
		p.Add(c.whole)
		if p.LastLoss != c.want || p.Starts != 1 {
			t.Errorf("%s: %d in %d starts, want %d", name, p.LastLoss, p.Starts, c.want)
		}
	}
	for since, want := range map[Time]Time{100: 150, 99: 205} {
		var p Past
		p.Add(sheet(206, 205))
		if p.SetBack(since, 150); p.LastLoss != want {
			t.Errorf("set back in the start of %d: %d, want %d", since, p.LastLoss, want)
		}
	}
}

// Of many moments the oldest are kept as what does not come any more.
func TestLastLossWithMoreMomentsThanAreKnown(t *testing.T) {
	b := NewBook(0)
	for n := range int64(maxMoments + 10) {
		b.At((n + 1) * 1e9)
		b.Numbered(128, Stream{1, 1}, uint64(2*n))
	}
	for n := int64(maxMoments + 10); n > 1; n-- {
		if got := b.LastLoss() / 1e9; got != max(n, 10) {
			t.Fatalf("with those to second %d missing the last loss is at %d", n, got)
		}
		b.Numbered(128, Stream{1, 1}, uint64(2*(n-1)-1))
	}
	if b.Frames().Missing != 0 {
		t.Errorf("%d are missing", b.Frames().Missing)
	}
}

// A device that seemed to count anew, and goes on where it was, has lost nothing then.
func TestLastLossOfADeviceThatGoesBack(t *testing.T) {
	b := NewBook(0)
	b.Resume(Position{Device: 1, Epoch: 1, Last: 99})
	for i, n := range []uint64{10, 11, 12, 15, 100} {
		b.At(int64(i+1) * 1e9)
		b.Numbered(128, Stream{1, 1}, n)
		if got := b.LastLoss(); i == 3 && (got != 4e9 || b.Frames().Missing != 2) {
			t.Errorf("it counts anew, %d are missing, the last loss is at %d", b.Frames().Missing, got)
		}
	}
	if b.LastLoss() != 0 || b.Frames().Missing != 0 {
		t.Errorf("it goes on: %d are missing, the last loss is at %d", b.Frames().Missing, b.LastLoss())
	}
}
