package spool

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ring"
)

func TestOpenRefusesWhatIsNoSpool(t *testing.T) {
	s := create(t, Config{})
	for _, change := range []struct {
		name  string
		at    int
		value uint64
	}{
		{"version", versionAt, Version + 1},
		{"no marks", slotsAt, 0},
		{"marks that are no power of two", slotsAt, 65},
		{"more marks than there are", slotsAt, MaxMarks},
		{"far more", slotsAt, 1 << 63},
		{"room that is no multiple", roomAt, 4097},
		{"more room than there is", roomAt, MaxRoom},
		{"far more room", roomAt, 1 << 63},
	} {
		word := ring.Uint64(s.owner, change.at)
		before := word.Load()
		word.Store(change.value)
		f := again(t, s)
		if o, err := Open(f); err == nil || change.name != "version" && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", change.name, err)
			if err == nil {
				_ = o.Close()
			}
		}
		_ = f.Close()
		word.Store(before)
	}
	for _, cfg := range []Config{
		{Size: -1}, {Size: ring.MaxSize + 1}, {Marks: -1}, {Marks: MaxMarks + 1}, {Room: -1}, {Room: MaxRoom + 1},
	} {
		if _, err := Create(cfg); err == nil {
			t.Errorf("%+v gives no error", cfg)
		}
	}
	largest := create(t, Config{Size: ring.MaxSize, Marks: MaxMarks, Room: MaxRoom})
	if second(t, largest).ID() != largest.ID() || largest.ID() == s.ID() {
		t.Error("the ids are not what they should be")
	}
	for _, most := range []int{-1, s.Size() + 1} {
		if _, err := s.Producer(most); err == nil {
			t.Errorf("reads of %d bytes give no error", most)
		}
	}
}

// TestWhatCannotBeIsAnError damages one thing at a time.
func TestWhatCannotBeIsAnError(t *testing.T) {
	produce := func(s *Spool) error { _, err := s.Producer(0); return err }
	consume := func(s *Spool) error {
		c, err := s.Consumer(1 << 62)
		for ok := true; ok && err == nil; {
			_, _, ok, err = c.Next()
		}
		return err
	}
	for _, c := range []struct {
		name  string
		word  func(s *Spool) *atomic.Uint64 // of the header, or of a mark
		value uint64
		do    func(s *Spool) error
	}{
		{"more marks than fit", header(publishedAt), 70, produce},
		{"more marks than fit, to the consumer", header(publishedAt), 70, consume},
		{"more marks passed than published", header(passedAt), 5, consume},
		{"a read longer than the spool", header(intentAt + 32), 1<<62 | uint64(Chunk), produce},
		{"a read longer than there is room", header(intentAt + 32), 4095<<32 | uint64(Chunk), produce},
		{"a read of no kind", header(intentAt + 32), 10<<32 | 77, produce},
		{"a mark before the end of the bytes", slot(3, 0), 29, produce},
		{"a mark behind the end of the bytes", slot(3, 0), 31, produce},
		{"a mark far behind", slot(3, 0), 1 << 62, produce},
		{"a mark behind another", slot(1, 0), 31, consume},
		{"a mark before another", slot(1, 0), 9, consume},
		{"a mark that is not where it says", slot(1, 0), 21, consume},
		{"a mark behind all that can be", slot(1, 0), 1 << 62, consume},
		{"a mark of no kind", slot(3, 16), 0, consume},
		{"a chunk of nothing", slot(3, 16), uint64(Chunk), consume},
		{"a mark of a kind to come", slot(3, 16), uint64(kinds), consume},
		{"a mark of other bytes", slot(1, 16), 11<<32 | uint64(Chunk), consume},
		{"a mark of bytes that tells of none", slot(1, 16), 10<<32 | uint64(Silent), consume},
	} {
		s := create(t, small)
		p, _ := ends(t, s, s)
		for range 3 {
			if _, err := p.Read(Chunk, Moment{}, 0, give("0123456789")); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Note(Mark{Kind: Silent}); err != nil {
			t.Fatal(err)
		}
		// What is left of the last intent is a stated one, once a word is there.
		for i, w := range []uint64{30, 4} {
			ring.Uint64(s.owner, intentAt+8*i).Store(w)
		}
		c.word(s).Store(c.value)
		if err := c.do(s); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// header and slot are words of a spool on a machine whose low byte comes first, as all of ours do.
func header(at int) func(*Spool) *atomic.Uint64 {
	return func(s *Spool) *atomic.Uint64 { return ring.Uint64(s.owner, at) }
}

func slot(i uint64, at int) func(*Spool) *atomic.Uint64 {
	return func(s *Spool) *atomic.Uint64 { return ring.Uint64(s.mark(i), at) }
}

// TestIntentsThatCannotBe are those of a producer that stood elsewhere.
func TestIntentsThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		name      string
		at, marks uint64
		good      bool
	}{
		{"its own", 10, 1, true},
		{"one whose mark is published", 0, 0, true},
		{"at another offset", 9, 1, false},
		{"with marks to come", 10, 2, false},
		{"with marks long gone", 10, 1 << 63, false},
	} {
		s := create(t, small)
		p, _ := ends(t, s, s)
		if _, err := p.Read(Chunk, Moment{}, 0, give("0123456789")); err != nil {
			t.Fatal(err)
		}
		p.state(Chunk, 100, Moment{})
		ring.Uint64(s.owner, intentAt).Store(c.at)
		ring.Uint64(s.owner, intentAt+8).Store(c.marks)
		if _, err := s.Producer(0); c.good != (err == nil) || err != nil && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	s := create(t, small) // its mark is published, and tells of more than there can be
	p, _ := ends(t, s, s)
	p.state(Chunk, 1<<30, Moment{})
	p.write(Mark{At: 1 << 20, Kind: Chunk, A: 1 << 20})
	p.publish()
	if _, err := s.Producer(0); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a mark of 1 MiB in a spool of 4 KiB: %v", err)
	}
}

// TestAPeerThatGoesBack is an end whose other side says what it cannot, while both are there.
func TestAPeerThatGoesBack(t *testing.T) {
	s := create(t, small)
	p, c := ends(t, s, s)
	for range s.Marks() { // what is in every slot could be
		if err := p.Note(Mark{Kind: Ended}); err != nil {
			t.Fatal(err)
		}
		if _, _, ok, err := c.Next(); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	for _, marks := range []uint64{63, 65, 64 + 65, 1 << 63} {
		ring.Uint64(s.owner, publishedAt).Store(marks)
		if _, _, _, err := c.Next(); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d marks behind 64: %v", marks, err)
		}
	}
	for _, marks := range []uint64{1 << 63, 65} {
		ring.Uint64(s.owner, passedAt).Store(marks)
		var err error
		for err == nil { // it looks where no room is known
			err = p.Note(Mark{Kind: Silent})
		}
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d marks passed: %v", marks, err)
		}
	}
	s = create(t, small)
	p, _ = ends(t, s, s)
	if _, err := p.Read(Chunk, Moment{}, 0, give("0123456789")); err != nil {
		t.Fatal(err)
	}
	for _, at := range []Point{
		{Shown: 11, Marks: 1},
		{Done: 11, Shown: 10, Marks: 1},
		{Done: 5, Shown: 4, Marks: 1},
		{Done: 1 << 63, Shown: 1 << 63, Marks: 1},
		{Marks: 2},
		{Marks: 1 << 63},
	} {
		forged := Checkpoint{Point: at}
		forged.put(s.checkpoint(0), 1, func() {})
		if _, err := s.Consumer(0); !errors.Is(err, ErrCorrupt) {
			t.Errorf("a checkpoint at %+v: %v", at, err)
		}
	}
}

// harmless is an error that wrong memory may lead to; anything else, a panic above all, is none.
func harmless(err error) bool {
	return err == nil || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrFull) || errors.Is(err, ErrBehind)
}

// use does what both ends do for a while, whatever is in the memory, and calls spoil in between.
func use(t testing.TB, s *Spool, rounds int, spoil func()) {
	t.Helper()
	var p *Producer
	var c *Consumer
	for range rounds {
		if spoil(); p == nil {
			var err error
			if p, err = s.Producer(600); !harmless(err) {
				t.Fatal(err)
			}
		}
		if p != nil {
			_, err := p.Read(Message, Moment{}, 0, give("some bytes"))
			if spoil(); err == nil {
				err = p.Note(Mark{Kind: Silent})
			}
			if !harmless(err) {
				t.Fatal(err)
			}
			if err != nil {
				p = nil // its owner gives up; another one comes
			}
		}
		if spoil(); c == nil {
			var err error
			if c, err = s.Consumer(1 << 62); !harmless(err) {
				t.Fatal(err)
			}
		}
		if c == nil {
			continue
		}
		_, _ = c.Deaths()
		_, view, ok, err := c.Next()
		if !harmless(err) || len(view) > s.Size() {
			t.Fatal(len(view), err)
		}
		for _, b := range view {
			_ = b
		}
		if spoil(); ok {
			c.Done(len(view))
		} else if err == nil {
			err = c.Save(Checkpoint{Point: c.Point(), Data: []byte("data")})
		}
		if err != nil {
			c = nil
		}
	}
}

// FuzzDamage writes into the memory of a spool that is in use: input is offsets and values.
func FuzzDamage(f *testing.F) {
	f.Add([]byte{1, 128, 0, 1, 0, 5, 9, 2, 3, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, in []byte) {
		s, err := Create(small)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		use(t, s, 50, func() { in = spoil(s, in) })
	})
}

// spoil does what the front of in says: leaves the memory alone, or changes a byte, or a word, and
// returns the rest.
func spoil(s *Spool, in []byte) []byte {
	if len(in) < 12 || in[0]%4 > 1 {
		return in[min(1, len(in)):]
	}
	at := (int(in[1]) | int(in[2])<<8) % len(s.owner)
	if in[3]%2 == 0 { // the words of the ends are few, and lie in front
		at %= checkpointsAt + 2*(checkpointBytes+s.room)
	}
	if in[0]%4 == 0 {
		s.owner[at] ^= in[4]
		return in[5:]
	}
	copy(s.owner[at&^7:], in[4:12])
	return in[12:]
}

// TestDamage is FuzzDamage with damage at random.
func TestDamage(t *testing.T) {
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	for range 300 {
		s := create(t, small)
		in := make([]byte, 2000)
		for i := range in {
			in[i] = byte(rng.Uint32() & rng.Uint32())
		}
		use(t, s, 100, func() { in = spoil(s, in) })
		_ = s.Close()
	}
}

// TestHostileMemory is a spool that somebody overwrites all the time, by a map of its own.
func TestHostileMemory(t *testing.T) {
	for seed := range uint64(100) {
		s := create(t, small)
		hostile := second(t, s)
		var stop atomic.Bool
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			rng := rand.New(rand.NewPCG(seed, 2))
			for !stop.Load() {
				at := rng.IntN(checkpointsAt/8) * 8
				if rng.IntN(2) == 0 {
					at = rng.IntN(len(hostile.owner)/8) * 8
				}
				ring.Uint64(hostile.owner, at).Add(uint64(rng.IntN(64)) - 32)
				runtime.Gosched()
			}
		}()
		use(t, s, 100, func() {})
		stop.Store(true)
		<-ended
		_ = errors.Join(s.Close(), hostile.Close())
	}
}
