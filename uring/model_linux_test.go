package uring_test

import (
	"bytes"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/uring"
	"golang.org/x/sys/unix"
)

// steps is the length of TestModel; the release test is 10,000,000 (make soak-uring).
var steps = flag.Int("steps", testenv.Rounds(30_000, 6_000), "random steps of the model")

// world is some rings and what they share: operations, files and buffers that are used rightly and
// wrongly, at random. What must hold, whatever happens: an operation comes back once for each time
// that it was taken; what it read is what lies in the file there; no byte changes but those lent,
// and those only while they are lent.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	rings   [3]*modelRing
	tasks   [48]*task
	lent    [24]*lent
	file    *uring.File // blockBytes × blocks, each byte tells where it is
	in      [2]*uring.File
	out     [2]*uring.File
	old     []uring.Address // of rings, some of them closed
	taken   int
	ended   int
	misuse  int
	starved int // times that all buffers were in flight
}

type modelRing struct {
	*uring.Ring
	stock  *uring.BufferRing
	pieces []uring.Piece // that were not given back yet
}

// task is an operation and what it is expected to do.
type task struct {
	op     uring.Op
	r      *modelRing // that has it
	into   []*lent    // what it writes to
	lo, hi int        // of into[0], where there is one
	off    int64      // in file; -1: the bytes come from a pipe
	closed bool       // a CloseFile that was taken once
	quiet  []*task    // the quiet chain that it is in
	box    bool
}

// lent is memory between canaries. On the one side lies a page that cannot be touched.
type lent struct {
	all    []byte // with what surrounds it
	mem    []byte // what the buffer may have
	buf    *uring.Buffer
	heap   bool
	flying bool
}

const (
	canary   = 0xc5
	poison   = 0x99
	modelMem = 2048
	fromPipe = 0x77
)

func contentAt(off int64) byte { return byte(off ^ off>>8 ^ off>>15) }

func newLent(t *testing.T, heap bool) *lent {
	l := &lent{heap: heap}
	if heap {
		l.all = make([]byte, 3*modelMem)
		l.mem = l.all[modelMem : 2*modelMem : 2*modelMem]
	} else {
		page := os.Getpagesize()
		m, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Munmap(m) })
		if err := unix.Mprotect(m[page:], unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
		l.all = m[:page]
		l.mem = m[page-modelMem : page : page]
	}
	for i := range l.all {
		l.all[i] = canary
	}
	l.give(l.mem)
	return l
}

// give makes a buffer of some of the memory; what it does not get is a canary.
func (l *lent) give(mem []byte) {
	for i := range l.mem {
		l.mem[i] = canary
	}
	for i := range mem {
		mem[i] = poison
	}
	switch {
	case l.buf != nil:
		l.buf.Reset(mem)
	case l.heap:
		l.buf = uring.Wrap(mem)
	default:
		l.buf = uring.Mapped(mem)
	}
}

// check holds the memory to being as give left it, but for the first bytes from lo on.
func (w *world) check(l *lent, lo, n int, want func(i int) byte) {
	w.t.Helper()
	mem := l.buf.Bytes()
	for i, b := range mem {
		switch {
		case i >= lo && i < lo+n:
			if b != want(i-lo) {
				w.t.Fatalf("byte %d of %d is %#x, want %#x", i, len(mem), b, want(i-lo))
			}
			mem[i] = poison
		case b != poison:
			w.t.Fatalf("byte %d of %d was written, where %d from %d were lent", i, len(mem), n, lo)
		}
	}
	if n := bytes.Count(l.all, []byte{canary}); n != len(l.all)-len(mem) {
		w.t.Fatalf("%d bytes were written outside the memory that was lent", len(l.all)-len(mem)-n)
	}
}

func TestModel(t *testing.T) {
	needs(t, uring.OpMsgRing)
	w := &world{t: t, rng: rand.New(rand.NewPCG(testenv.Seed(t), 3))}
	w.file, _ = temp(t)
	content := make([]byte, blocks*blockBytes)
	for i := range content {
		content[i] = contentAt(int64(i))
	}
	if _, err := unix.Pwrite(w.file.FD(), content, 0); err != nil {
		t.Fatal(err)
	}
	for i := range w.in {
		w.in[i], w.out[i] = pipe(t)
		if err := unix.SetNonblock(w.out[i].FD(), true); err != nil {
			t.Fatal(err)
		}
	}
	for i := range w.lent {
		w.lent[i] = newLent(t, i%2 == 0)
	}
	for i := range w.tasks {
		w.tasks[i] = &task{}
	}
	for i := range w.rings {
		w.rings[i] = w.open()
	}
	for i := range *steps {
		if i > 0 && i%1_000_000 == 0 { // of a release test
			t.Logf("%d of %d steps", i, *steps)
		}
		w.step()
	}
	for _, r := range w.rings {
		w.shut(r)
	}
	for _, l := range w.lent {
		w.check(l, 0, 0, nil)
	}
	if w.taken != w.ended {
		t.Errorf("%d operations were taken, %d came back", w.taken, w.ended)
	}
	t.Logf("%d operations, %d mistakes refused, %d times out of buffers", w.taken, w.misuse, w.starved)
}

func (w *world) open() *modelRing {
	r, err := uring.New(uring.Config{Entries: 8, InFlight: 24})
	if err != nil {
		w.t.Fatal(err)
	}
	g, err := r.NewBufferRing(4, 256, w.rng.IntN(2) == 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return &modelRing{Ring: r, stock: g}
}

// shut ends a ring; everything that it has comes back.
func (w *world) shut(r *modelRing) {
	err := r.Shutdown(func(op *uring.Op) { w.came(op) })
	if err != nil {
		w.t.Fatal(err)
	}
	for _, k := range w.tasks {
		if k.r != r {
			continue
		}
		if !k.box {
			w.t.Fatalf("%v did not come back", k.op.Code())
		}
		w.ended++
		k.r, k.box = nil, false
	}
	for _, p := range r.pieces {
		p.Give()
	}
}

func (w *world) step() {
	r := w.rings[w.rng.IntN(len(w.rings))]
	k := w.tasks[w.rng.IntN(len(w.tasks))]
	switch n := w.rng.IntN(100); {
	case n < 20:
		w.reap(r)
	case n < 25:
		w.feed()
	case n < 26 && w.rng.IntN(10) == 0:
		for i := range w.rings {
			if w.rings[i] == r {
				w.shut(r)
				w.rings[i] = w.open()
			}
		}
	case k.r != nil:
		w.meddle(r, k)
	case n < 30 && k.op.Code() != uring.OpNop:
		w.again(r, k)
	default:
		w.begin(r, k)
	}
}

// meddle does to an operation in flight what must not be done, or cancels it.
func (w *world) meddle(r *modelRing, k *task) {
	switch w.rng.IntN(5) {
	case 0:
		if err := r.Push(&k.op); !errors.Is(err, uring.ErrBusy) && !errors.Is(err, uring.ErrFull) {
			w.t.Fatalf("pushed twice: %v", err)
		}
		w.misuse++
	case 1:
		touch := []func(){k.op.Reset, func() { k.op.Nop() }, func() { k.op.Async() }, func() { k.op.Part(0, 1) }}
		for _, l := range k.into {
			touch = append(touch, func() { l.buf.Bytes() }, func() { l.buf.Reset(nil) })
		}
		panics(w.t, "in flight", touch[w.rng.IntN(len(touch))])
		w.misuse++
	default:
		c := w.tasks[w.rng.IntN(len(w.tasks))]
		if c.r != nil {
			return
		}
		c.op.Cancel(&k.op)
		if k.op.Code() == uring.OpTimeout && w.rng.IntN(2) == 0 {
			c.op.UpdateTimeout(&k.op, time.Microsecond)
		}
		if err := w.push(r, c); err == nil && r != k.r {
			w.t.Fatal("an operation of another ring is cancelled")
		}
	}
}

// push pushes what was filled just now, and keeps count.
func (w *world) push(r *modelRing, k *task) error {
	err := r.Push(&k.op)
	if err != nil {
		w.misuse++
		k.into, k.box = nil, false
		return err
	}
	w.taken++
	k.r = r
	for _, l := range k.into {
		l.flying = true
	}
	return nil
}

// idle picks a buffer that no operation writes, of some of its memory. On a busy machine all may be
// in flight, waiting for bytes of a pipe that nobody sends while this one looks for a buffer.
func (w *world) idle() *lent {
	l := w.lent[w.rng.IntN(len(w.lent))]
	for tries := 1; l.flying; tries++ {
		if tries%1000 == 0 {
			w.starved++
			w.feed()
			w.reap(w.rings[w.rng.IntN(len(w.rings))])
		}
		l = w.lent[w.rng.IntN(len(w.lent))]
	}
	w.check(l, 0, 0, nil)
	l.give(l.mem[len(l.mem)-w.rng.IntN(modelMem+1):])
	return l
}

func (w *world) begin(r *modelRing, k *task) {
	k.into, k.off, k.lo, k.hi = nil, -1, 0, -1
	op, pipe := &k.op, w.in[w.rng.IntN(len(w.in))]
	switch w.rng.IntN(14) {
	case 0, 1, 2:
		w.read(r, k)
	case 3:
		l := w.idle()
		k.into = []*lent{l}
		_ = w.push(r, filled(k, op.Read(pipe, l.buf, uring.Current), w.rng))
	case 4:
		one, two := w.idle(), w.idle()
		k.off, k.into = int64(w.rng.IntN(blocks*blockBytes)), []*lent{one, two}
		op.Readv(w.file, k.off, one.buf, two.buf)
		if err := w.push(r, k); one == two && err == nil {
			w.t.Fatal("a vector with one buffer twice")
		}
	case 5:
		_ = w.push(r, filled(k, op.Timeout(time.Duration(w.rng.IntN(300))*time.Microsecond, w.rng.IntN(3)), w.rng))
	case 6:
		_ = w.push(r, filled(k, op.Poll(pipe, unix.POLLIN), w.rng))
	case 7:
		if k.box = w.rng.IntN(10) == 0; !k.box { // they stay for as long as their ring
			return
		}
		if w.push(r, filled(k, op.Mailbox(), w.rng)) == nil {
			w.old = append(w.old, op.Address())
		}
	case 8:
		if n := len(w.old); n > 0 {
			_ = w.push(r, filled(k, op.Message(w.old[w.rng.IntN(n)], 1), w.rng))
		}
	case 9:
		_ = w.push(r, filled(k, op.Open("/dev/null", os.O_RDONLY, 0), w.rng))
	case 10:
		f, err := uring.FileOf(os.Stdin)
		if err != nil {
			w.t.Fatal(err)
		}
		if w.rng.IntN(3) == 0 {
			f.Close()
		}
		op.CloseFile(f)
		open := f.FD() >= 0
		if k.closed = w.push(r, k) == nil; k.closed && !open {
			w.t.Fatal("what is closed is closed again")
		}
	case 11:
		// of this ring or another; and a pipe is no socket
		_ = w.push(r, filled(k, op.RecvFrom(pipe, w.rings[0].stock), w.rng))
	case 12:
		w.chain(r)
	default:
		_ = w.push(r, filled(k, op.Fsync(w.file, true), w.rng))
	}
}

// filled is the task; some operations run on a worker thread from the start.
func filled(k *task, op *uring.Op, rng *rand.Rand) *task {
	if rng.IntN(8) == 0 {
		op.Async()
	}
	return k
}

// read reads from the file; sometimes into a part of a buffer that shrinks before the push.
func (w *world) read(r *modelRing, k *task) {
	l := w.idle()
	k.off, k.into, k.hi = int64(w.rng.IntN(blocks*blockBytes)), []*lent{l}, l.buf.Len()
	k.op.Read(w.file, l.buf, k.off)
	if w.rng.IntN(2) == 0 && l.buf.Len() > 0 {
		k.hi = 1 + w.rng.IntN(l.buf.Len())
		k.lo = w.rng.IntN(k.hi)
		k.op.Part(k.lo, k.hi)
		if w.rng.IntN(4) == 0 {
			l.give(l.mem[:w.rng.IntN(l.buf.Len())])
		}
	}
	filled(k, &k.op, w.rng)
	if tooLong := k.hi > l.buf.Len(); (w.push(r, k) == nil) && tooLong {
		w.t.Fatal("a part beyond the end of its buffer")
	}
}

// again pushes an operation as it was filled once, with whatever its buffer is now.
func (w *world) again(r *modelRing, k *task) {
	switch k.op.Code() {
	case uring.OpTimeout, uring.OpPollAdd, uring.OpFsync, uring.OpClose, uring.OpMsgRing, uring.OpAsyncCancel,
		uring.OpTimeoutRemove:
		k.into = nil
		if err := w.push(r, k); err == nil && k.op.Code() == uring.OpClose {
			if k.closed {
				w.t.Fatal("a file is closed twice")
			}
			k.closed = true // the ring was full before
		}
	}
}

// chain runs a read, a sync and an end one after the other.
func (w *world) chain(r *modelRing) {
	var free []*task
	for _, k := range w.tasks {
		if k.r == nil && len(free) < 3 {
			k.into, k.lo, k.hi, k.box = nil, 0, -1, false
			free = append(free, k)
		}
	}
	if len(free) < 3 {
		return
	}
	l := w.idle()
	free[0].off, free[0].into, free[0].hi = int64(w.rng.IntN(blocks*blockBytes)), []*lent{l}, l.buf.Len()
	ops := []*uring.Op{
		free[0].op.Read(w.file, l.buf, free[0].off), free[1].op.Fsync(w.file, true),
		free[2].op.LinkTimeout(time.Hour),
	}
	push, quiet := r.Chain, w.rng.IntN(2) == 0 && uring.Probe().Has(uring.QuietChains) == nil
	if quiet {
		push = r.QuietChain
		ops[1].Nop()
		ops[2].Fsync(w.file, true)
	}
	if w.rng.IntN(4) == 0 {
		ops[2].Readv(w.file, 0, l.buf) // which the first has
	}
	if err := push(ops...); err != nil {
		w.misuse++
		for i, k := range free {
			if k.into = nil; ops[i].InFlight() {
				w.t.Fatal("in flight of a chain that was refused")
			}
		}
		return
	}
	l.flying = true
	for _, k := range free {
		if k.r = r; quiet {
			k.quiet = free
		}
	}
	w.taken += len(free)
}

// feed gives the pipes something to read.
func (w *world) feed() {
	_, err := unix.Write(w.out[w.rng.IntN(len(w.out))].FD(), bytes.Repeat([]byte{fromPipe}, w.rng.IntN(600)))
	if err != nil && err != unix.EAGAIN {
		w.t.Fatal(err)
	}
}

func (w *world) reap(r *modelRing) {
	n := 0
	if r.InFlight() > 20 {
		n = 1
	}
	err := r.WaitFor(n, time.Millisecond)
	if err != nil && !errors.Is(err, uring.ErrTimeout) {
		w.t.Fatal(err)
	}
	for op := r.Next(); op != nil; op = r.Next() {
		w.came(op)
	}
}

// came looks at an operation that has come back.
func (w *world) came(op *uring.Op) {
	var k *task
	for _, t := range w.tasks {
		if &t.op == op {
			k = t
		}
	}
	if k.r == nil {
		w.t.Fatalf("%v came back, and nobody has pushed it", op.Code())
	}
	if k.box {
		return
	}
	if op.InFlight() {
		w.t.Fatalf("%v is in flight after it came back", op.Code())
	}
	for _, m := range k.quiet { // one completion is that of all; at the end of their ring each has its own
		if m.r != nil && m != k && !m.op.InFlight() {
			m.quiet = nil
			w.ends(m, m.op.Res == 0)
		}
	}
	k.quiet = nil
	w.ends(k, false)
}

// ends looks at what an operation has done. all: everything that it was asked to.
func (w *world) ends(k *task, all bool) {
	op := &k.op
	w.ended++
	k.r = nil
	if op.Code() == uring.OpOpenAt && op.Err() == nil {
		f, err := op.NewFile(nil)
		if err == nil {
			err = f.Close()
		}
		if _, again := op.NewFile(nil); err != nil || again == nil {
			w.t.Fatal("a descriptor and its owner: ", err, again)
		}
	}
	left := max(int(op.Res), 0)
	if all && len(k.into) > 0 {
		left = k.into[0].buf.Len()
	}
	at := 0
	for i, l := range k.into {
		l.flying = false
		n := min(left, l.buf.Len())
		if i == 0 && k.hi >= 0 {
			n = min(left, k.hi-k.lo)
		}
		w.check(l, k.lo, n, func(i int) byte {
			if k.off < 0 {
				return fromPipe
			}
			return contentAt(k.off + int64(at+i))
		})
		left, at = left-n, at+n
	}
	if left > 0 && len(k.into) > 0 {
		w.t.Fatalf("%v did %d more than asked", op.Code(), left)
	}
	k.into = nil
}
