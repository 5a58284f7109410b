package uring_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/uring"
	"golang.org/x/sys/unix"
)

// queues runs a test with the kernel's bundles, and without.
func queues(t *testing.T, test func(t *testing.T, r *uring.Ring)) {
	for _, bundles := range []bool{true, false} {
		t.Run(fmt.Sprintf("bundles=%v", bundles), func(t *testing.T) {
			kinds(t, func(t *testing.T, cfg uring.Config) {
				if bundles {
					have(t, uring.SendBundles)
				}
				r := open(t, cfg)
				if !bundles {
					uring.WithoutBundles(r)
				}
				test(t, r)
			})
		})
	}
}

func newQueue(t *testing.T, r *uring.Ring, n int) *uring.SendQueue {
	t.Helper()
	q, err := r.NewSendQueue(n)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// narrow is both ends of a connection whose sender has little room; the second does not block.
func narrow(t *testing.T, tcp bool) (from, to *uring.File) {
	from, to = sockets(t)
	if tcp {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		a, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		b, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		one, err := uring.FileOf(a.(*net.TCPConn))
		two, err2 := uring.FileOf(b.(*net.TCPConn))
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { one.Close(); two.Close() })
		from, to = one, two
	}
	if err := errors.Join(unix.SetsockoptInt(from.FD(), unix.SOL_SOCKET, unix.SO_SNDBUF, 4096),
		unix.SetNonblock(to.FD(), true)); err != nil {
		t.Fatal(err)
	}
	return from, to
}

// turn asks again and again, since each time moves something; for at most a minute.
func turn(t *testing.T, over func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !over(); {
		if time.Now().After(end) {
			t.Fatal("it has no end")
		}
	}
}

// sender puts what it makes into a queue, and holds what arrives to it.
type sender struct {
	t    *testing.T
	r    *uring.Ring
	rng  *rand.Rand
	q    *uring.SendQueue
	op   uring.Op
	stop uring.Op
	out  []*uring.Buffer // put, in their order
	to   *uring.File
	put  uint64
	sent uint64 // by the results
	got  uint64
	most int // buffers gone at a completion
}

// at is byte i of all that is sent.
func at(i uint64) byte { return byte(i ^ i>>7 ^ i>>13) }

func (s *sender) add() {
	n := s.rng.IntN(600)
	if s.rng.IntN(8) == 0 {
		n = s.rng.IntN(20_000)
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = at(s.put + uint64(i))
	}
	buf := uring.Wrap(b)
	if err := s.q.Put(buf); err != nil {
		if !errors.Is(err, uring.ErrFull) || s.q.Len() < 16 {
			s.t.Fatal(err)
		}
		return
	}
	s.put += uint64(n)
	if n > 0 {
		s.out = append(s.out, buf)
	}
}

func (s *sender) read(most int) {
	b := make([]byte, most)
	n, err := unix.Read(s.to.FD(), b)
	if err == unix.EAGAIN {
		return
	}
	if err != nil {
		s.t.Fatal(err)
	}
	for i, c := range b[:n] {
		if want := at(s.got + uint64(i)); c != want {
			s.t.Fatalf("byte %d is %#x, want %#x", s.got+uint64(i), c, want)
		}
	}
	s.got += uint64(n)
}

func (s *sender) reap() {
	if err := s.r.WaitFor(0, 0); err != nil {
		s.t.Fatal(err)
	}
	for op := s.r.Next(); op != nil; op = s.r.Next() {
		if op != &s.op {
			continue
		}
		if op.Err() != nil && !errors.Is(op.Err(), unix.ECANCELED) {
			s.t.Fatal(op.Result())
		}
		if _, ok := op.Picked(); ok {
			s.t.Fatal("a piece of what was sent")
		}
		s.sent += uint64(max(op.Res, 0))
		gone := 0
		for len(s.out) > s.q.Len() {
			if s.out[0].InFlight() {
				s.t.Fatal("a buffer that has been sent is in flight")
			}
			s.out = s.out[1:]
			gone++
		}
		s.most = max(s.most, gone)
		for _, b := range s.out {
			if !b.InFlight() {
				s.t.Fatal("a buffer that waits is not in flight")
			}
		}
		if len(s.out) != s.q.Len() {
			s.t.Fatalf("%d wait, the queue says %d", len(s.out), s.q.Len())
		}
	}
}

// TestSendEach: everything that is put arrives once and in order, also where the peer is slow,
// where sending is cancelled at any place, and the collector runs.
func TestSendEach(t *testing.T) {
	steps := 8000
	if testing.Short() {
		steps = 1000
	}
	queues(t, func(t *testing.T, r *uring.Ring) {
		for _, tcp := range []bool{false, true} {
			from, to := narrow(t, tcp)
			s := &sender{t: t, r: r, rng: rand.New(rand.NewPCG(testenv.Seed(t), 9)), q: newQueue(t, r, 16), to: to}
			cancelled := 0
			for step := range steps {
				switch n := s.rng.IntN(20); {
				case n < 7:
					s.add()
				case n < 13:
					s.read(1 + s.rng.IntN(30_000))
				case n == 13 && s.op.InFlight() && !s.stop.InFlight() && s.rng.IntN(3) == 0:
					if err := r.Push(s.stop.Cancel(&s.op)); err != nil {
						t.Fatal(err)
					}
					cancelled++
				case n == 14 && step%50 == 0:
					runtime.GC()
				default:
					if !s.op.InFlight() && s.q.Len() > 0 {
						if err := r.Push(s.op.SendEach(from, s.q)); err != nil {
							t.Fatal(err)
						}
					}
					s.reap()
				}
			}
			turn(t, func() bool {
				if !s.op.InFlight() && s.q.Len() > 0 {
					if err := r.Push(s.op.SendEach(from, s.q)); err != nil {
						t.Fatal(err)
					}
				}
				s.reap()
				s.read(1 << 20)
				return s.got == s.put && !s.op.InFlight() && !s.stop.InFlight()
			})
			if s.sent != s.put {
				t.Errorf("%d bytes were put, the results say %d", s.put, s.sent)
			}
			if err := s.q.Close(); err != nil {
				t.Error(err)
			}
			if s.most < 3 {
				t.Errorf("at most %d buffers went at a time", s.most)
			}
			t.Logf("%d bytes, %d cancelled, up to %d buffers at a time", s.put, cancelled, s.most)
		}
	})
}

// What is put while a send is in flight goes with it, where the kernel has bundles; and more than
// one message can name goes all the same, where it has none.
func TestSendEachOfMany(t *testing.T) {
	queues(t, func(t *testing.T, r *uring.Ring) {
		const n = 2048
		q, big := newQueue(t, r, n), uring.Wrap(make([]byte, 1<<20))
		from, to := narrow(t, false)
		if err := q.Put(big); err != nil {
			t.Fatal(err)
		}
		var op uring.Op
		if err := errors.Join(r.Push(op.SendEach(from, q)), r.Submit()); err != nil {
			t.Fatal(err)
		}
		for range n - 1 {
			if err := q.Put(uring.Wrap([]byte{'x'})); err != nil {
				t.Fatal(err)
			}
		}
		if err := q.Put(uring.Wrap([]byte{'x'})); !errors.Is(err, uring.ErrFull) {
			t.Errorf("more than there is room for: %v", err)
		}
		left, b := 1<<20+n-1, make([]byte, 1<<16)
		turn(t, func() bool {
			if m, err := unix.Read(to.FD(), b); err == nil {
				left -= m
			}
			if err := r.WaitFor(0, 0); err != nil {
				t.Fatal(err)
			}
			for r.Next() != nil {
				if op.Err() != nil {
					t.Fatal(op.Result())
				}
			}
			if !op.InFlight() && q.Len() > 0 {
				if err := r.Push(&op); err != nil { // as it was filled
					t.Fatal(err)
				}
			}
			return left == 0 && !op.InFlight()
		})
		if big.InFlight() || q.Len() != 0 {
			t.Errorf("%d left", q.Len())
		}
	})
}

func TestSendQueueRefuses(t *testing.T) {
	queues(t, func(t *testing.T, r *uring.Ring) {
		for _, n := range []int{0, -1, 3, 65536} {
			if _, err := r.NewSendQueue(n); err == nil {
				t.Errorf("a queue of %d", n)
			}
		}
		q, other := newQueue(t, r, 4), open(t, uring.Config{})
		from, to := narrow(t, false)
		var op, second uring.Op
		full := uring.Wrap(make([]byte, 1<<20))
		g := newQueue(t, r, 1)
		wantErr := func(what, want string, err error) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", what, err)
			}
		}
		wantErr("no queue", "no send queue", r.Push(op.SendEach(from, nil)))
		wantErr("no file", "no file", r.Push(op.SendEach(nil, q)))
		wantErr("an empty queue", "nothing in it", r.Push(op.SendEach(from, q)))
		wantErr("no buffer", "no buffer", q.Put(nil))
		if err := q.Put(uring.Wrap(nil)); err != nil || q.Len() != 0 {
			t.Errorf("an empty buffer: %v, %d", err, q.Len())
		}
		if err := q.Put(full); err != nil {
			t.Fatal(err)
		}
		panics(t, "Reset of a buffer that waits", func() { full.Reset(nil) })
		wantErr("of another ring", "another ring", other.Push(second.SendEach(from, q)))
		wantErr("within a quiet chain", "more than once", r.QuietChain(second.SendEach(from, q), new(uring.Op)))
		if err := errors.Join(r.Push(op.SendEach(from, q)), r.Submit()); err != nil {
			t.Fatal(err)
		}
		if err := r.Push(second.SendEach(from, q)); !errors.Is(err, uring.ErrBusy) {
			t.Errorf("two at a time: %v", err)
		}
		if err := q.Close(); !errors.Is(err, uring.ErrBusy) {
			t.Errorf("closed in flight: %v", err)
		}
		to.Close() // the peer is gone: what is left stays
		turn(t, func() bool {
			if err := r.WaitFor(0, 0); err != nil {
				t.Fatal(err)
			}
			for r.Next() != nil {
			}
			return !op.InFlight()
		})
		if op.Err() == nil && op.Res == 1<<20 || q.Len() != 1 || !full.InFlight() {
			t.Errorf("%d, %d left", op.Res, q.Len())
		}
		if err := errors.Join(q.Close(), q.Close()); err != nil || full.InFlight() || q.Len() != 0 {
			t.Errorf("%v, in flight %v", err, full.InFlight())
		}
		wantErr("put after close", "closed", q.Put(full))
		wantErr("sent after close", "closed", r.Push(op.SendEach(from, q)))
		// A ring's end is that of its queues.
		if err := g.Put(full); err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil || full.InFlight() || g.Len() != 0 {
			t.Errorf("%v, in flight %v", err, full.InFlight())
		}
		wantErr("put after the ring's end", "closed", g.Put(full))
		if _, err := r.NewSendQueue(1); !errors.Is(err, uring.ErrClosed) {
			t.Errorf("of a closed ring: %v", err)
		}
	})
}

// A kernel that goes on behind a buffer of which it has sent a part leaves bytes out.
func TestSendQueueThatHasLostBytes(t *testing.T) {
	r := open(t, uring.Config{})
	q := newQueue(t, r, 4)
	from, _ := narrow(t, false)
	for range 3 {
		if err := q.Put(uring.Wrap(make([]byte, 100))); err != nil {
			t.Fatal(err)
		}
	}
	uring.LeftOut(q, 150)
	if err := r.Push(new(uring.Op).SendEach(from, q)); err == nil || !strings.Contains(err.Error(), "left bytes out") {
		t.Error(err)
	}
}

// TestWaitForAll: Wait(InFlight()) behind a quiet chain waited for completions that never come; so
// did a wait for more than is in flight.
func TestWaitForAll(t *testing.T) {
	kinds(t, func(t *testing.T, cfg uring.Config) {
		r := open(t, cfg)
		var ops [4]uring.Op
		wait := func(n, want int) {
			t.Helper()
			if err := r.WaitFor(n, time.Minute); err != nil {
				t.Fatalf("wait for %d: %v", n, err)
			}
			for r.Next() != nil {
				want--
			}
			if want != 0 || r.InFlight() != 0 {
				t.Errorf("%d more were to come, %d are in flight", want, r.InFlight())
			}
		}
		quiet := func() {
			t.Helper()
			have(t, uring.QuietChains)
			if err := r.QuietChain(ops[0].Nop(), ops[1].Nop(), ops[2].Nop()); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Push(ops[3].Timeout(time.Millisecond, 0)); err != nil {
			t.Fatal(err)
		}
		wait(5, 1)
		for range 3 {
			quiet()
			if err := r.Push(ops[3].Timeout(time.Millisecond, 0)); err != nil {
				t.Fatal(err)
			}
			wait(r.InFlight(), 2)
			if err := r.QuietChain(&ops[0], ops[1].Mailbox()); err == nil {
				t.Fatal("taken")
			}
			do(t, r, &ops[0], &ops[2]) // ordinary operations again
		}
		in, _ := pipe(t)
		quiet()
		// it may come any number of times, and so nothing is known
		if err := r.Push(ops[3].PollEach(in, unix.POLLIN)); err != nil {
			t.Fatal(err)
		}
		if err := r.WaitFor(r.InFlight(), time.Millisecond); !errors.Is(err, uring.ErrTimeout) {
			t.Errorf("with an operation that completes many times: %v", err)
		}
		reap(t, r, 1) // the quiet chain
		do2(t, r, &ops[3], new(uring.Op).Cancel(&ops[3]))
		quiet()
		wait(r.InFlight(), 1)
	})
}

// TestSendEachThatIsTakenBack: an operation of a chain that is not queued is as it was before. A
// SendEach still expected buffers; filled as a receive, it panicked for a piece that never came.
func TestSendEachThatIsTakenBack(t *testing.T) {
	stocks(t, 2, 64, func(t *testing.T, r *uring.Ring, g *uring.BufferRing) {
		in, out := sockets(t)
		q, err := r.NewSendQueue(2)
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Put(uring.Wrap([]byte("x"))); err != nil {
			t.Fatal(err)
		}
		var op uring.Op
		if err := r.Chain(op.SendEach(out, q), new(uring.Op).Send(out, nil)); err == nil {
			t.Fatal("a chain with an operation without a buffer is queued")
		}
		send(t, out, "y")
		do(t, r, op.RecvFrom(in, g))
		p, ok := op.Picked()
		if !ok || string(p.Bytes) != "y" {
			t.Fatalf("%q, %v", p.Bytes, ok)
		}
		p.Give()
		if op.Nop(); g.Free() != 2 || q.Len() != 1 {
			t.Errorf("%d of 2 buffers are free, %d wait", g.Free(), q.Len())
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
}
