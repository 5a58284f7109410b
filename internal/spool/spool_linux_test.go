package spool

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ring"
)

// second maps the memory once more, as another process would.
func second(t testing.TB, s *Spool) *Spool {
	t.Helper()
	o, err := Open(again(t, s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Close() })
	return o
}

func again(t testing.TB, s *Spool) *os.File {
	t.Helper()
	fd, err := sys.Dup(int(s.File().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), "again")
}

func ends(t testing.TB, producer, consumer *Spool) (*Producer, *Consumer) {
	t.Helper()
	p, err := producer.Producer(0)
	if err != nil {
		t.Fatal(err)
	}
	c, err := consumer.Consumer(1 << 62)
	if err != nil {
		t.Fatal(err)
	}
	return p, c
}

// give is a device that gives that.
func give(text string) func(int, []byte) (int, syscall.Errno) {
	return func(_ int, b []byte) (int, syscall.Errno) { return copy(b, text), 0 }
}

func TestWhatIsReadComesWithItsMarks(t *testing.T) {
	s := create(t, Config{})
	p, c := ends(t, s, second(t, s))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(p.Note(Mark{Time: 1, Kind: Opened}))
	for i, text := range []string{"one", "two"} {
		n, err := p.Read(Chunk, Moment{int64(2 + i), int64(12 + i)}, 0, give(text))
		if must(err); n != 3 {
			t.Fatalf("%d bytes read", n)
		}
	}
	must(p.Note(Mark{Time: 4, Kind: Silent, B: 5}))
	_, err := p.Read(Message, Moment{6, 16}, 0, give(""))
	must(err)
	if n, err := p.Read(Chunk, Moment{7, 17}, 0, give("")); n != 0 || err != nil {
		t.Fatalf("the end of a stream: %d, %v", n, err)
	}
	if _, err := p.Read(Chunk, Moment{}, 0,
		func(int, []byte) (int, syscall.Errno) { return -1, syscall.EIO }); !errors.Is(err, syscall.EIO) {
		t.Fatalf("an errno: %v", err)
	}
	must(p.Note(Mark{Time: 8, Kind: Closed, A: 5, B: 20}))
	for _, want := range []struct {
		mark Mark
		view string
		done int
	}{
		{Mark{0, 1, Opened, 0, 0}, "", 0},
		{Mark{3, 2, Chunk, 3, 12}, "one", 1},
		{Mark{6, 3, Chunk, 3, 13}, "netwo", 4},
		{Mark{6, 4, Silent, 0, 5}, "o", 0},
		{Mark{6, 6, Message, 0, 16}, "o", 0},
		{Mark{6, 8, Closed, 5, 20}, "o", 1},
	} {
		m, view, ok, err := c.Next()
		if err != nil || !ok || m != want.mark || string(view) != want.view {
			t.Fatalf("%+v with %q, %v, %v; want %+v", m, view, ok, err, want)
		}
		c.Done(want.done)
	}
	if m, _, ok, err := c.Next(); ok || err != nil {
		t.Errorf("%+v behind the end, %v", m, err)
	}
	if at := c.Point(); at != (Point{6, 6, 6, 6, 20}) {
		t.Errorf("the consumer is at %+v", at)
	}
}

// A read that takes all or nothing is known by one byte that differs from the pattern, but for a
// short one that left no trace.
func TestAReadOfAllOrNothing(t *testing.T) {
	for _, given := range []int{1, 5, 7, 8, 9, 100} {
		// the last so many bytes are like the pattern; all: it may have taken none
		for _, like := range []int{0, 1, 7, 8, given} {
			if like > given {
				continue
			}
			s := create(t, Config{Size: 8192})
			p, _ := ends(t, s, s)
			_ = (&model{}).try(func() {}, func() error {
				_, err := p.ReadWhole(Chunk, given, Moment{7, 8}, 0, func(_ int, b []byte) (int, syscall.Errno) {
					for i := range b[:given-like] {
						b[i] ^= 0xFF
					}
					panic(killed{})
				})
				return err
			})
			p, err := s.Producer(0)
			if err != nil {
				t.Fatal(err)
			}
			want := Recovery{CutOff: true, Bytes: given}
			switch {
			case like == given && given < doubt:
				want.Bytes, want.Uncertain = 0, given
			case like >= doubt: // it gave fewer than it had said, or nothing
				want.Bytes = given - like
			}
			if got := p.Recovered(); got != want {
				t.Errorf("%d given, the last %d like the pattern: %+v, want %+v", given, like, got, want)
			}
		}
	}
}

// A message has room as a whole, or none: it is not cut in two.
func TestAMessageHasRoomOrNone(t *testing.T) {
	s := create(t, Config{Size: 1})
	_, c := ends(t, s, s)
	p, err := s.Producer(s.Size())
	if err != nil {
		t.Fatal(err)
	}
	long := make([]byte, s.Size()-10)
	take := func(_ int, b []byte) (int, syscall.Errno) { return copy(b, long), 0 }
	if n, err := p.ReadWhole(Message, 10, Moment{1, 1}, 0, take); n != 10 || err != nil {
		t.Fatal(n, err)
	}
	for _, n := range []int{s.Size(), s.Size() - 9} {
		if _, err := p.ReadWhole(Message, n, Moment{2, 2}, 0, take); !errors.Is(err, ErrFull) {
			t.Errorf("%d bytes where %d are free: %v", n, s.Size()-10, err)
		}
	}
	if _, err := p.Read(Message, Moment{2, 2}, 0, take); !errors.Is(err, ErrFull) {
		t.Errorf("a message of any length: %v", err)
	}
	if n, err := p.ReadWhole(Message, len(long), Moment{3, 3}, 0, take); n != len(long) || err != nil {
		t.Errorf("one that just fits: %d, %v", n, err)
	}
	for _, want := range []int{10, len(long)} {
		if m, view, ok, err := c.Next(); !ok || err != nil || len(view) != want {
			t.Errorf("%+v of %d bytes, %v; want %d", m, len(view), err, want)
		}
		c.Done(want)
	}
}

// A read whose last bytes are those of the pattern is named as uncertain, and so is one that may
// have been of nothing.
func TestWhatLooksLikeNothingIsNamed(t *testing.T) {
	for _, n := range []int{0, 1, 5, 100, 4096} {
		for _, like := range []int{0, 1, 8, 9} {
			if like > n {
				continue
			}
			s := create(t, Config{Size: 8192})
			p, c := ends(t, s, s)
			for range 3 { // an offset that is no multiple of anything
				if _, err := p.Read(Chunk, Moment{}, 0, give("1")); err != nil {
					t.Fatal(err)
				}
			}
			p.step = func() {}
			_ = (&model{}).try(func() {}, func() error {
				_, err := p.Read(Chunk, Moment{7, 8}, 0, func(_ int, b []byte) (int, syscall.Errno) {
					s.key.lay(b[:n], 3)
					for i := range b[:n-like] {
						b[i] ^= 0xFF
					}
					panic(killed{})
				})
				return err
			})
			p, err := s.Producer(0)
			if err != nil {
				t.Fatal(err)
			}
			want := Recovery{CutOff: true, Bytes: n - like, Uncertain: min(4096-n+like, doubt)}
			if p.Recovered() != want {
				t.Errorf("%d bytes, %d of them like the pattern: %+v, want %+v", n, like, p.Recovered(), want)
			}
			var got []Mark
			for m, _, ok, err := c.Next(); ok || err != nil; m, _, ok, err = c.Next() {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, m)
			}
			end := uint64(3 + n - like)
			var marks []Mark
			if n > like {
				marks = append(marks, Mark{end, 7, Chunk, uint32(n - like), 8})
			}
			if want.Uncertain > 0 {
				marks = append(marks, Mark{end, 7, Lost, Uncertain, uint64(want.Uncertain)})
			}
			if !slices.Equal(got[3:], marks) {
				t.Errorf("%d bytes, %d of them like the pattern: marks %+v, want %+v", n, like, got[3:], marks)
			}
		}
	}
}

func TestAFullSpoolTakesNothing(t *testing.T) {
	s := create(t, Config{Size: 4096, Marks: 64})
	p, c := ends(t, s, s)
	fill := func(text string) (n int, err error) {
		for err == nil {
			var k int
			k, err = p.Read(Chunk, Moment{}, 0, give(text))
			n += k
		}
		return n, err
	}
	empty := func() {
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
	if n, err := fill(strings.Repeat("x", 1000)); n != 4096 || !errors.Is(err, ErrFull) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if err := p.Note(Mark{Kind: Silent}); err != nil {
		t.Errorf("a mark beside bytes that are full: %v", err)
	}
	empty()
	for i := range 2 { // what lies before the older of two checkpoints is given back
		if n, err := fill("x"); n != 0 || !errors.Is(err, ErrFull) {
			t.Fatalf("%d bytes before checkpoint %d, %v", n, i, err)
		}
		if err := c.Save(Checkpoint{Point: c.Point()}); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := fill("x"); n != 64-reserve+1 || !errors.Is(err, ErrFull) {
		t.Fatalf("%d bytes with a mark each, %v", n, err)
	}
	var err error
	for n := uint64(0); err == nil; n++ {
		if err = p.Note(Mark{Kind: Silent}); err != nil && (n != reserve-Silent.room() || !errors.Is(err, ErrFull)) {
			t.Fatalf("%d marks more, %v", n, err)
		}
	}
	for i, kind := range []Kind{Lost, Lost, Ended} { // what says how it ended has room all the same
		if err := p.Note(Mark{Kind: kind}); err != nil {
			t.Errorf("mark %d of the last ones: %v", i, err)
		}
	}
	if err := p.Note(Mark{Kind: Ended}); !errors.Is(err, ErrFull) {
		t.Errorf("a mark behind all slots: %v", err)
	}
	empty()
	if err := c.Save(Checkpoint{Point: c.Point(), Data: make([]byte, s.Room()+1)}); err == nil {
		t.Error("a checkpoint that has no room is taken")
	}
}

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

func BenchmarkRoundOf128Bytes(b *testing.B) {
	s := create(b, Config{})
	p, c := ends(b, s, s)
	b.SetBytes(128)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Read(Chunk, Moment{}, 0, read128); err != nil {
			b.Fatal(err)
		}
		_, view, ok, err := c.Next()
		if !ok || err != nil {
			b.Fatal(ok, err)
		}
		c.Done(len(view))
		if c.Point().Marks%64 == 0 {
			if err := c.Save(Checkpoint{Point: c.Point()}); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func read128(_ int, b []byte) (int, syscall.Errno) { return len(b[:128]), 0 }

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
