package spool

import (
	"bytes"
	"errors"
	"testing"
)

// TestDeaths is a consumer that dies of what it sees.
func TestDeaths(t *testing.T) {
	s := create(t, Config{})
	p, _ := ends(t, s, s)
	for range 10 {
		if _, err := p.Read(Chunk, Moment{}, 0, give("x")); err != nil {
			t.Fatal(err)
		}
	}
	die := func(at uint64) { // at work on a mark
		c, err := s.Consumer(0)
		if err != nil {
			t.Fatal(err)
		}
		for c.Point().Marks <= at {
			if _, _, ok, err := c.Next(); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
	}
	says := func(deaths int, mark uint64) {
		t.Helper()
		c, err := s.Consumer(0)
		if err != nil {
			t.Fatal(err)
		}
		if n, at := c.Deaths(); n != deaths || at != mark {
			t.Errorf("%d deaths of mark %d, want %d of %d", n, at, deaths, mark)
		}
	}
	says(0, 0)
	die(4)
	says(1, 4)
	says(1, 4) // one that ended before it was at work
	die(4)
	die(4)
	says(3, 4)
	die(2)
	says(1, 2)
	die(9)
	c, err := s.Consumer(0)
	if err != nil {
		t.Fatal(err)
	}
	for {
		_, view, ok, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		c.Done(len(view))
		if c.Point().Marks == 7 {
			c.Close() // in order: it did not die
			says(1, 9)
		}
	}
	if err := c.Save(Checkpoint{Point: c.Point()}); err != nil {
		t.Fatal(err)
	}
	says(0, 0)
}

// TestTheLogIsBehind is a spool whose checkpoints speak of more than the log has.
func TestTheLogIsBehind(t *testing.T) {
	s := create(t, Config{Size: 4096})
	p, c := ends(t, s, s)
	for i := range 3 {
		if _, err := p.Read(Chunk, Moment{}, 0, give("abc")); err != nil {
			t.Fatal(err)
		}
		if _, _, ok, err := c.Next(); !ok || err != nil {
			t.Fatal(ok, err)
		}
		c.Done(3)
		if err := c.Save(Checkpoint{
			Point: c.Point(), Sequence: uint64(10 * (i + 1)),
			Data: []byte{byte(i)},
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, try := range []struct {
		upTo uint64
		data []byte
	}{{30, []byte{2}}, {29, []byte{1}}, {20, []byte{1}}} {
		c, err := s.Consumer(try.upTo)
		if err != nil {
			t.Fatal(err)
		}
		if cp, ok := c.Restored(); !ok || !bytes.Equal(cp.Data, try.data) {
			t.Errorf("a log up to %d goes on from %+v", try.upTo, cp)
		}
	}
	if _, err := s.Consumer(19); !errors.Is(err, ErrBehind) {
		t.Errorf("a log before every checkpoint: %v", err)
	}
	if last := s.Sequence(); last != 30 {
		t.Errorf("the checkpoints reach up to %d", last)
	}
	// A log that has lost what is behind one of them, or behind both.
	c, err := s.ConsumerOf(func(sequence uint64) bool { return sequence != 30 })
	if err != nil {
		t.Fatal(err)
	}
	if cp, _ := c.Restored(); c.IsBehind() || !bytes.Equal(cp.Data, []byte{1}) {
		t.Errorf("a log without record 30 goes on from %+v", cp)
	}
	for range 2 { // who goes on there, and is killed, leaves it to the next
		if c, err = s.ConsumerOf(func(uint64) bool { return false }); err != nil {
			t.Fatal(err)
		}
		if cp, _ := c.Restored(); !c.IsBehind() || !bytes.Equal(cp.Data, []byte{1}) {
			t.Errorf("a log without both goes on from %+v", cp)
		}
	}
	if err := c.Save(Checkpoint{Point: c.Point(), Sequence: 15, Data: []byte{9}}); err != nil {
		t.Fatal(err)
	}
	if c, err = s.Consumer(19); err != nil {
		t.Fatal(err)
	}
	if cp, _ := c.Restored(); !bytes.Equal(cp.Data, []byte{9}) {
		t.Errorf("behind that: from %+v", cp)
	}
}

// passAll has the consumer pass everything that is published.
func passAll(t *testing.T, c *Consumer) {
	t.Helper()
	for {
		_, view, ok, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return
		}
		c.Done(len(view))
	}
}

// TestPastOfALongTime: a device whose mark others have overwritten is open, for it is read.
func TestPastOfALongTime(t *testing.T) {
	s := create(t, Config{Marks: minMarks})
	p, c := ends(t, s, s)
	if err := p.Note(Mark{Time: 1, Kind: Opened, B: 1}); err != nil {
		t.Fatal(err)
	}
	for range 3 * minMarks {
		if _, err := p.Read(Chunk, Moment{Wall: 2, Steady: 3}, 0, read128); err != nil {
			t.Fatal(err)
		}
		passAll(t, c)
		if err := c.Save(Checkpoint{Point: c.Point()}); err != nil {
			t.Fatal(err)
		}
	}
	if past := p.Past(); past.Device != Opened {
		t.Errorf("it is %+v, want a device that is open", past)
	}
}

// TestPast looks back at what the producer before has written, also where the consumer has passed
// it, and holds marks of counters to the room that reads leave.
func TestPast(t *testing.T) {
	s := create(t, Config{Marks: minMarks})
	p, c := ends(t, s, s)
	if past := p.Past(); past != (Past{}) {
		t.Errorf("of nothing: %+v", past)
	}
	note := func(m Mark) {
		t.Helper()
		if err := p.Note(m); err != nil {
			t.Fatal(err)
		}
	}
	note(Mark{Time: 1, Kind: Opened, B: 1})
	if _, err := p.Read(Chunk, Moment{Wall: 2, Steady: 3}, 0, read128); err != nil {
		t.Fatal(err)
	}
	note(Mark{Time: 4, Kind: Silent, B: 5})
	note(Mark{Time: 5, Kind: Counted, A: 1, B: 7})
	passAll(t, c)
	want := Past{Read: Mark{At: 128, Time: 2, Kind: Chunk, A: 128, B: 3}, Silences: 1, Device: Opened}
	if past := p.Past(); past != want {
		t.Errorf("it is %+v, want %+v", past, want)
	}
	note(Mark{Time: 6, Kind: Closed, A: 5, B: 9})
	if want.Device = Closed; p.Past() != want {
		t.Errorf("it is %+v, want %+v", p.Past(), want)
	}
	full := error(nil)
	for n := 0; full == nil && n <= minMarks; n++ {
		full = p.Note(Mark{Kind: Counted, B: uint64(n)})
	}
	if !errors.Is(full, ErrFull) {
		t.Errorf("counters fill all: %v", full)
	}
	for range 3 {
		note(Mark{Time: 7, Kind: Silent, B: 1})
	}
}
