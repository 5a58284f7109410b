package ipc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ring"
	"pgregory.net/rapid"
)

// soon is far longer than anything takes that happens at all.
const soon = time.Minute

// shared makes a ring and maps it once more, as another process would.
func shared(t testing.TB, cfg RingConfig) (a, b *Ring) {
	t.Helper()
	a, err := Create(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if b, err = Open(again(t, a.File()), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

func again(t testing.TB, f *os.File) *os.File {
	t.Helper()
	fd, err := sys.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), "again")
}

func take[E any](t testing.TB, end func() (E, error)) E {
	t.Helper()
	e, err := end()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// fill makes message number k, whose length and bytes follow from k and the sender's generation.
func fill(b []byte, k uint64, generation uint32) []byte {
	n := 16 + int(k*7%uint64(len(b)-15))
	binary.LittleEndian.PutUint64(b, k)
	binary.LittleEndian.PutUint64(b[8:], uint64(generation))
	for i := 16; i < n; i++ {
		b[i] = byte(k) + byte(generation)*31 + byte(i)*7
	}
	return b[:n]
}

// check returns an error if b is not message k, whole.
func check(b []byte, k uint64) error {
	if len(b) < 16 {
		return fmt.Errorf("message %d has %d bytes", k, len(b))
	}
	want := fill(make([]byte, messageSize), k, uint32(binary.LittleEndian.Uint64(b[8:])))
	if !bytes.Equal(b, want) {
		return fmt.Errorf("message %d is number %d, of %d bytes, not %d, or torn: %x", k, binary.LittleEndian.Uint64(b),
			len(b), len(want), b)
	}
	return nil
}

const messageSize = 120

func TestMessagesOfARing(t *testing.T) {
	for _, spin := range []time.Duration{-1, 0, time.Millisecond} {
		a, b := shared(t, RingConfig{Slot: messageSize, Size: 4096, Spin: spin})
		s, r := take(t, a.Sender), take(t, b.Receiver)
		const messages = 20_000
		go func() {
			buf := make([]byte, messageSize)
			for k := range uint64(messages) {
				if err := s.Send(fill(buf, k, 1), soon); err != nil {
					t.Error(err)
					break
				}
			}
			s.Close()
		}()
		buf := make([]byte, messageSize)
		for k := uint64(0); ; k++ {
			n, err := r.Receive(buf, soon)
			if errors.Is(err, io.EOF) && k == messages {
				break
			}
			if err == nil {
				err = check(buf[:n], k)
			}
			if err != nil || r.Count() != k+1 {
				t.Fatalf("message %d: %v", k, err)
			}
		}
	}
}

func TestBytesOfARing(t *testing.T) {
	a, b := shared(t, RingConfig{Size: 4096})
	p, c := take(t, a.Producer), take(t, b.Consumer)
	const total = 3 << 20
	go func() {
		rng := rand.New(rand.NewPCG(1, 1))
		for p.Position() < total {
			n := min(1+rng.IntN(4096), int(total-p.Position()))
			space, err := p.Wait(n, soon)
			if err != nil {
				t.Error(err)
				break
			}
			for i := range n {
				space[i] = byte((p.Position() + uint64(i)) >> 3)
			}
			p.Publish(n)
		}
		p.Close()
	}()
	for {
		view, err := c.Wait(1, soon)
		if errors.Is(err, io.EOF) && c.Position() == total {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, got := range view {
			if want := byte((c.Position() + uint64(i)) >> 3); got != want {
				t.Fatalf("byte %d is %#x, want %#x", c.Position()+uint64(i), got, want)
			}
		}
		c.Release(len(view))
	}
}

func TestWaitsEnd(t *testing.T) {
	leaksNothing(t, func() {
		a, b := shared(t, RingConfig{Size: 4096})
		p, c := take(t, a.Producer), take(t, b.Consumer)
		if view, err := c.Wait(1, time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) || len(view) != 0 {
			t.Errorf("after the time: %d bytes, %v", len(view), err)
		}
		if _, err := c.Wait(1, 0); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("at once: %v", err)
		}
		stop := errors.New("stop")
		waits := make(chan error)
		wait := func() {
			_, err := c.Wait(1, -1)
			waits <- err
		}
		go wait()
		c.Interrupt(stop)
		if err := <-waits; !errors.Is(err, stop) {
			t.Errorf("interrupted: %v", err)
		}
		if _, err := c.Wait(1, -1); !errors.Is(err, stop) {
			t.Errorf("interrupted before: %v", err)
		}
		p.Publish(1)
		if view, err := c.Wait(1, -1); err != nil || len(view) != 1 {
			t.Errorf("what is there comes all the same: %d bytes, %v", len(view), err)
		}
		c.Interrupt(nil)
		c.Release(1)

		next := take(t, a.Producer) // the first is replaced
		if _, err := p.Space(1); !errors.Is(err, ErrReplaced) || !strings.Contains(err.Error(), "generation 2") {
			t.Errorf("a producer that was replaced: %v", err)
		}
		p.Close() // which does not end the other
		if _, err := c.Wait(1, time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after the close of one that was replaced: %v", err)
		}
		next.Publish(3)
		go wait()
		if err := <-waits; err != nil {
			t.Error(err)
		}
		next.Close()
		if view, err := c.Wait(4, -1); !errors.Is(err, io.EOF) || len(view) != 3 {
			t.Errorf("the end: %d bytes, %v; want 3 and io.EOF", len(view), err)
		}
		third := take(t, a.Producer)
		if third.Position() != 4 || third.Generation() != 3 {
			t.Errorf("the third begins at %d, generation %d", third.Position(), third.Generation())
		}
		c.Close()
		if _, err := third.Wait(4096, -1); !errors.Is(err, ErrPeerClosed) {
			t.Errorf("a producer whose consumer has closed: %v", err)
		}
		_, _ = a.Close(), b.Close()
		c.Interrupt(stop) // nobody is there: nothing happens
	})
}

// TestWaitForWhatCannotBe: more than the ring holds would never come, and less than a byte is no
// wait.
func TestWaitForWhatCannotBe(t *testing.T) {
	a, b := shared(t, RingConfig{Size: 4096})
	p, c := take(t, a.Producer), take(t, b.Consumer)
	p.Publish(1)
	for _, n := range []int{-5, 0, a.Size() + 1} {
		for name, wait := range map[string]func(int, time.Duration) ([]byte, error){
			"producer": p.Wait, "consumer": c.Wait,
		} {
			got, err := wait(n, soon)
			if want := fmt.Sprintf("ipc: a wait for %d bytes: want 1 to 4096", n); len(got) > 0 || err == nil ||
				!strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s: %d bytes, %v; want %s", name, len(got), err, want)
			}
		}
	}
}

func TestWrongUseIsAnError(t *testing.T) {
	leaksNothing(t, func() {
		a, err := Create(RingConfig{Slot: 100})
		if err != nil {
			t.Fatal(err)
		}
		b, err := Create(RingConfig{})
		if err != nil {
			t.Fatal(err)
		}
		_, producerErr := a.Producer()
		_, consumerErr := a.Consumer()
		_, senderErr := b.Sender()
		_, receiverErr := b.Receiver()
		s, r := take(t, a.Sender), take(t, a.Receiver)
		_, roomErr := r.Receive(make([]byte, 99), 0)
		f := again(t, a.File())
		_, slotErr := Open(f, RingConfig{Slot: 99})
		_ = f.Close()
		plain, err := ring.NewShared("plain", 4096, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, plainErr := Open(plain.File(), RingConfig{})
		_, bigErr := Create(RingConfig{Slot: 5000, Size: 4096})
		_, ownerErr := Create(RingConfig{Owner: MaxOwner + 1})
		_, sizeErr := Create(RingConfig{Size: -1})
		for i, err := range []error{
			producerErr, consumerErr, senderErr, receiverErr, s.Send(make([]byte, 101), 0), roomErr, slotErr, plainErr,
			bigErr, ownerErr, sizeErr,
		} {
			if err == nil {
				t.Errorf("wrong use %d is no error", i)
			}
		}
		_, _, _ = a.Close(), b.Close(), plain.Close()
	})
}

// TestHostileMemory changes the whole of the shared memory at random while both ends work on it.
func TestHostileMemory(t *testing.T) {
	seed := testenv.Seed(t)
	try := func(cfg RingConfig) {
		a, b := shared(t, cfg)
		raw, err := sys.MapFile(a.File(), 8192, true)
		if err != nil {
			t.Fatal(err)
		}
		var stop atomic.Bool
		done := make(chan struct{})
		defer func() {
			stop.Store(true)
			<-done
			_ = sys.Unmap(raw)
		}()
		go func() {
			defer close(done)
			rng := rand.New(rand.NewPCG(seed, 1))
			for !stop.Load() {
				word := ring.Uint64(raw,
					[]int{128, 256, 512, 576, 640, 768, 4096 + 8*rng.IntN(512), 8 * rng.IntN(1024)}[rng.IntN(8)])
				word.Store([]uint64{
					rng.Uint64(), word.Load() + rng.Uint64N(8192) - 4096,
					rng.Uint64N(200),
				}[rng.IntN(3)])
			}
		}()
		work := time.Now()
		errs := 0
		for time.Since(work) < 150*time.Millisecond || errs == 0 && time.Since(work) < soon {
			if cfg.Slot == 0 {
				errs += abuseBytes(t, a, b)
			} else {
				errs += abuseSlots(t, a, b)
			}
			if f := again(t, a.File()); true {
				if o, err := Open(f, cfg); err == nil {
					_ = o.Close()
				} else {
					_ = f.Close()
				}
			}
		}
		if errs == 0 {
			t.Error("nothing was noticed")
		}
	}
	try(RingConfig{Size: 4096, Spin: -1})
	try(RingConfig{Size: 4096, Spin: -1, Slot: messageSize})
}

func abuseBytes(t *testing.T, a, b *Ring) (errs int) {
	p, perr := a.Producer()
	c, cerr := b.Consumer()
	if perr != nil || cerr != nil {
		return 1
	}
	for n := 1; n <= 4096; n = n*3 + 1 {
		space, err := p.Wait(n, 0)
		if len(space) > 4096 {
			t.Fatalf("%d bytes of space", len(space))
		}
		clear(space)
		p.Publish(min(n, len(space)))
		view, cerr := c.Wait(n, time.Microsecond)
		if len(view) > 4096 {
			t.Fatalf("%d bytes in view", len(view))
		}
		sum := byte(0)
		for _, b := range view {
			sum += b
		}
		_ = sum
		c.Release(min(n, len(view)))
		if errors.Is(err, ErrCorrupt) || errors.Is(cerr, ErrCorrupt) || errors.Is(cerr, ErrReplaced) {
			errs++
		}
	}
	return errs
}

func abuseSlots(t *testing.T, a, b *Ring) (errs int) {
	s, serr := a.Sender()
	r, rerr := b.Receiver()
	if serr != nil || rerr != nil {
		return 1
	}
	buf := make([]byte, messageSize)
	for range 20 {
		err := s.Send(buf, 0)
		n, rerr := r.Receive(buf, time.Microsecond)
		if n < 0 || n > messageSize {
			t.Fatalf("a message of %d bytes", n)
		}
		if errors.Is(err, ErrCorrupt) || errors.Is(rerr, ErrCorrupt) || errors.Is(rerr, ErrReplaced) {
			errs++
		}
	}
	return errs
}

func TestLengthOfASlotIsChecked(t *testing.T) {
	testenv.Check(t, func(rt *rapid.T) {
		a, err := Create(RingConfig{Slot: messageSize, Size: 4096})
		if err != nil {
			rt.Fatal(err)
		}
		defer a.Close()
		s, r := take(t, a.Sender), take(t, a.Receiver)
		if err := s.Send([]byte("x"), 0); err != nil {
			rt.Fatal(err)
		}
		length := rapid.Uint32Min(messageSize+1).Draw(rt, "length")
		view, err := r.c.View(1)
		if err != nil {
			rt.Fatal(err)
		}
		ring.Uint32(view, 0).Store(length)
		if n, err := r.Receive(make([]byte, messageSize), 0); n != 0 || !errors.Is(err, ErrCorrupt) {
			rt.Fatalf("a length of %d: %d, %v", length, n, err)
		}
	})
}

// TestRingThatIsClosed: an end that outlives its ring is refused, and touches no memory.
func TestRingThatIsClosed(t *testing.T) {
	for _, slot := range []int{0, 100} {
		r, err := Create(RingConfig{Slot: slot})
		if err != nil {
			t.Fatal(err)
		}
		var uses []func() error
		if slot == 0 {
			p, errP := r.Producer()
			c, errC := r.Consumer()
			if err := errors.Join(errP, errC); err != nil {
				t.Fatal(err)
			}
			uses = []func() error{
				func() error { _, err := p.Space(1); return err },
				func() error { _, err := p.Wait(1, 0); return err },
				func() error { _, err := c.View(1); return err },
				func() error { _, err := c.Wait(1, -1); return err },
				func() (err error) { defer func() { err = recover().(error) }(); p.Publish(0); return nil },
				func() (err error) { defer func() { err = recover().(error) }(); c.Release(0); return nil },
				func() error { _, err := r.Producer(); return err },
				func() error { _, err := r.Consumer(); return err },
			}
			defer p.Close()
			defer c.Interrupt(os.ErrInvalid)
		} else {
			s, errS := r.Sender()
			v, errV := r.Receiver()
			if err := errors.Join(errS, errV); err != nil {
				t.Fatal(err)
			}
			uses = []func() error{
				func() error { return s.Send([]byte("x"), 0) },
				func() error { _, err := v.Receive(make([]byte, 100), -1); return err },
				func() error { _, err := v.Peek(make([]byte, 100), 0); return err },
				func() (err error) { defer func() { err = recover().(error) }(); v.Discard(); return nil },
				func() error { _, err := r.Sender(); return err },
			}
			defer s.Close()
		}
		if err := errors.Join(r.Close(), r.Close()); err != nil {
			t.Fatal(err)
		}
		for i, use := range uses {
			if err := use(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("slots of %d, use %d of a closed ring: %v", slot, i, err)
			}
		}
	}
}
