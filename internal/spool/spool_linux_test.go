package spool

import (
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tallywheel/tallywheel/internal/sys"
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
