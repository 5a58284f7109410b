package ring

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"pgregory.net/rapid"
)

func share(t testing.TB, size, owner int) *Shared {
	t.Helper()
	s, err := NewShared("test-ring", size, owner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// second maps the memory once more, as another process would.
func second(t testing.TB, s *Shared) *Shared {
	t.Helper()
	o, err := OpenShared(again(t, s.File()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Close() })
	return o
}

func again(t testing.TB, f *os.File) *os.File {
	t.Helper()
	fd, err := sys.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), "again")
}

func ends(t testing.TB, producer, consumer *Shared) (*Producer, *Consumer) {
	t.Helper()
	p, err := producer.Producer()
	if err != nil {
		t.Fatal(err)
	}
	c, err := consumer.Consumer()
	if err != nil {
		t.Fatal(err)
	}
	return p, c
}

// TestSharedAgainstSlice also lets either end be taken anew, as a process does after a kill.
func TestSharedAgainstSlice(t *testing.T) {
	a := share(t, 1, 3000)
	b := second(t, a)
	if a.Size() != b.Size() || len(a.Owner()) != len(b.Owner()) || len(a.Owner()) < 3000 {
		t.Fatalf("%d and %d bytes, %d and %d of the owner", a.Size(), b.Size(), len(a.Owner()), len(b.Owner()))
	}
	Uint64(a.Owner(), 8).Store(7)
	if got := Uint64(b.Owner(), 8).Load(); got != 7 {
		t.Errorf("the owner's word is %d on the other side", got)
	}
	var published, released uint64
	testenv.Check(t, func(t *rapid.T) {
		p, c := must(t, a.Producer), must(t, b.Consumer)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			n := rapid.IntRange(0, a.Size()).Draw(t, "n")
			switch rapid.IntRange(0, 9).Draw(t, "do") {
			case 0:
				p = must(t, a.Producer)
			case 1:
				c = must(t, b.Consumer)
			case 2, 3, 4, 5:
				space, err := p.Space(n)
				if free := a.Size() - int(published-released); err != nil || len(space) < min(n, free) ||
					len(space) > free {
					t.Fatalf("%d bytes of space, %v; asked for %d of %d", len(space), err, n, free)
				}
				n = min(n, len(space))
				for i := range n {
					space[i] = at(published + uint64(i))
				}
				p.Publish(n)
				published += uint64(n)
			default:
				view, err := c.View(n)
				if held := int(published - released); err != nil || len(view) < min(n, held) || len(view) > held {
					t.Fatalf("%d bytes in view, %v; asked for %d of %d", len(view), err, n, held)
				}
				for i, b := range view {
					if b != at(released+uint64(i)) {
						t.Fatalf("byte %d is %#x, want %#x", released+uint64(i), b, at(released+uint64(i)))
					}
				}
				n = min(n, len(view))
				c.Release(n)
				released += uint64(n)
			}
			if p.Position() != published || c.Position() != released {
				t.Fatalf("positions %d and %d, want %d and %d", p.Position(), c.Position(), published, released)
			}
		}
	})
}

// at is the byte at a position of a stream that never repeats itself for long.
func at(position uint64) byte { return byte(position * 0x9e3779b97f4a7c15 >> 56) }

func must[E any](t *rapid.T, take func() (E, error)) E {
	e, err := take()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestSharedProducerAndConsumer(t *testing.T) {
	const words = 200_000
	a := share(t, 4096, 0)
	p, c := ends(t, a, second(t, a))
	go func() {
		rng := rand.New(rand.NewPCG(1, 1))
		for sent := uint64(0); sent < words; {
			n := min(1+rng.IntN(100), words-int(sent))
			space, err := p.Space(n * 8)
			if err != nil {
				t.Error(err)
				return
			}
			if len(space) < n*8 {
				runtime.Gosched()
				continue
			}
			for i := range n {
				binary.LittleEndian.PutUint64(space[i*8:], sent)
				sent++
			}
			p.Publish(n * 8)
		}
	}()
	for want := uint64(0); want < words; {
		view, err := c.View(8)
		if err != nil {
			t.Fatal(err)
		}
		if len(view) == 0 {
			runtime.Gosched()
		}
		for i := 0; i < len(view); i += 8 {
			if got := binary.LittleEndian.Uint64(view[i:]); got != want {
				t.Fatalf("read %d, want %d", got, want)
			}
			want++
		}
		c.Release(len(view))
	}
}

func TestOpenSharedRefusesWhatIsNoRing(t *testing.T) {
	s := share(t, 8192, 0)
	for _, change := range []struct {
		name  string
		at    int
		value uint64
	}{
		{"magic", 0, 1},
		{"version", 8, 2},
		{"size of nothing", 16, 0},
		{"size that is no power of two", 16, 8192 + 4096},
		{"size less than the memory", 16, 4096},
		{"size more than the memory", 16, 16384},
		{"size that wraps", 16, 1 << 63},
		{"owner that wraps", 24, ^uint64(0) - 511},
		{"owner in no whole page", 24, 100},
		{"head before tail", tailAt, 1},
		{"head far ahead", headAt, 8193},
	} {
		word := Uint64(s.mem, change.at)
		before := word.Load()
		word.Store(change.value)
		f := again(t, s.File())
		o, err := OpenShared(f)
		if err == nil { // the indices are only looked at by the ends
			_, perr := o.Producer()
			_, cerr := o.Consumer()
			if err = perr; cerr == nil {
				err = nil
			}
			_ = o.Close()
		} else {
			_ = f.Close()
		}
		if err == nil || change.name != "version" && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", change.name, err)
		}
		word.Store(before)
	}
	if err := syscall.Ftruncate(int(s.File().Fd()), 4096); err == nil {
		t.Error("the memory can be cut off")
	}
	plain, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if err := plain.Truncate(8192); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenShared(plain); err == nil {
		t.Error("a file is taken, which anybody can cut off")
	}
	for _, sizes := range [][2]int{{0, 0}, {-1, 0}, {MaxSize + 1, 0}, {1, -1}, {1, MaxOwner + 1}} {
		if _, err := NewShared("x", sizes[0], sizes[1]); err == nil {
			t.Errorf("NewShared(%d, %d) gives no error", sizes[0], sizes[1])
		}
	}
}

// TestHostileIndices is an end whose other side tells whatever it likes, while it works.
func TestHostileIndices(t *testing.T) {
	s := share(t, 4096, 0)
	hostile := second(t, s)
	testenv.Check(t, func(t *rapid.T) {
		Uint64(s.mem, headAt).Store(1000)
		Uint64(s.mem, tailAt).Store(500)
		p, c := must(t, s.Producer), must(t, s.Consumer)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			near := uint64(rapid.IntRange(-5000, 5000).Draw(t, "near"))
			Uint64(hostile.mem, rapid.SampledFrom([]int{headAt, tailAt}).Draw(t, "which")).Store(
				rapid.SampledFrom([]uint64{c.tail + near, p.head + near, rapid.Uint64().Draw(t, "any")}).Draw(t,
					"value"))
			n := rapid.IntRange(0, 4096).Draw(t, "n")
			space, err := p.Space(n)
			if len(space) > 4096 || err != nil && (len(space) > 0 || !errors.Is(err, ErrCorrupt)) {
				t.Fatalf("%d bytes of space, %v", len(space), err)
			}
			p.Publish(min(n, len(space)))
			view, err := c.View(n)
			if len(view) > 4096 || err != nil && (len(view) > 0 || !errors.Is(err, ErrCorrupt)) {
				t.Fatalf("%d bytes in view, %v", len(view), err)
			}
			c.Release(min(n, len(view)))
		}
	})
	Uint64(s.mem, headAt).Store(1000) // whatever the last hostile words were
	Uint64(s.mem, tailAt).Store(500)
	p, c := ends(t, s, s)
	for name, back := range map[string]func() error{
		"tail": func() error {
			p.look.Store(p.tail - 1)
			_, err := p.Space(4097)
			return err
		},
		"head": func() error {
			c.look.Store(c.head - 1)
			_, err := c.View(4097)
			return err
		},
	} {
		if err := back(); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "after") {
			t.Errorf("a %s that goes back: %v", name, err)
		}
	}
}

func TestSharedMisuse(t *testing.T) {
	s := share(t, 1, 0)
	p, c := ends(t, s, s)
	for name, f := range map[string]func(){
		"publish more than free": func() { p.Publish(s.Size() + 1) },
		"publish less than none": func() { p.Publish(-1) },
		"release more than held": func() { c.Release(1) },
		"a word out of range":    func() { Uint64(s.Owner(), len(s.Owner())-4) },
		"a word across words":    func() { Uint64(s.Owner(), 4) },
		"half a word across":     func() { Uint32(s.Owner(), 2) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

// FuzzShared lets the two ends meet any header, and memory that another goroutine changes.
func FuzzShared(f *testing.F) {
	f.Add(uint64(4096), uint64(3584), uint64(100), uint64(50), uint64(9))
	f.Add(uint64(4096), uint64(3584), uint64(1)<<63, uint64(0), uint64(1))
	f.Fuzz(func(t *testing.T, size, owner, head, tail, seed uint64) {
		s := share(t, 4096, 0)
		for at, v := range map[int]uint64{16: size, 24: owner, headAt: head, tailAt: tail} {
			Uint64(s.mem, at).Store(v)
		}
		file := again(t, s.File())
		o, err := OpenShared(file)
		if err != nil {
			_ = file.Close()
			return
		}
		defer o.Close()
		p, perr := o.Producer()
		c, cerr := o.Consumer()
		if perr != nil || cerr != nil {
			return
		}
		var stop atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			for rng := rand.New(rand.NewPCG(seed, 1)); !stop.Load(); {
				Uint64(s.mem, []int{headAt, tailAt}[rng.IntN(2)]).Store(head + uint64(rng.IntN(8192)) - 4096)
			}
		}()
		for i := range 200 {
			if space, err := p.Space(i * 31 % 4096); err == nil {
				p.Publish(min(len(space), i))
			}
			if view, err := c.View(i * 17 % 4096); err == nil {
				c.Release(min(len(view), i))
			}
		}
		stop.Store(true)
		<-done
	})
}

func BenchmarkSharedRoundOf128Bytes(b *testing.B) {
	s := share(b, 64<<10, 0)
	p, c := ends(b, s, s)
	b.SetBytes(128)
	for b.Loop() {
		space, _ := p.Space(128)
		space[0] = 1
		p.Publish(128)
		view, _ := c.View(128)
		_ = view[127]
		c.Release(128)
	}
}

func TestNamesThatCannotBe(t *testing.T) {
	for _, name := range []string{strings.Repeat("x", MaxName+1), "a\x00b"} {
		if s, err := NewShared(name, 1, 0); err == nil || !strings.Contains(err.Error(), "want at most 249") {
			t.Errorf("%q makes %v: %v", name, s, err)
		}
	}
	s, err := NewShared(strings.Repeat("x", MaxName), 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
}
