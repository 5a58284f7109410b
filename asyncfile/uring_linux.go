package asyncfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/tallywheel/tallywheel/uring"
)

// ringed says why io_uring cannot be had here; nil if it can.
func ringed() error {
	if err := uring.Probe().Has(uring.Rings); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// ringFile is the uring backend: plain reads and writes run on the caller, where they are quickest;
// what gains from a ring goes through one that is shared under a lock, and made when it is first
// needed.
type ringFile struct {
	*plain
	os    *os.File
	stats *ChainStats

	mu     sync.Mutex // over all below
	file   *uring.File
	ring   *uring.Ring // nil until it is needed
	ops    [MaxChain + 1]uring.Op
	bufs   [MaxChain]uring.Buffer
	list   [MaxChain + 1]*uring.Op
	one    [1][]byte
	closed bool

	// script changes what is asked or answered, for tests; nil otherwise.
	script *script
}

// script stands between a ring and its user. short limits how much of a transfer is asked for;
// verdict replaces a result.
type script struct {
	short   func(op *uring.Op, n int) int
	verdict func(op *uring.Op)
}

func (s *script) part(op *uring.Op, n int) {
	if s != nil && s.short != nil && n > 0 {
		op.Part(0, s.short(op, n))
	}
}

func (s *script) judge(op *uring.Op) {
	if s != nil && s.verdict != nil {
		s.verdict(op)
	}
}

func newRinged(f *os.File, cfg Config, choice Choice) (File, error) {
	if err := ringed(); err != nil {
		return nil, fmt.Errorf("open %s: %w", f.Name(), err)
	}
	file, err := uring.FileOf(f)
	if err != nil {
		return nil, err
	}
	return &ringFile{
		plain: newPlain(disk{f}, cfg, choice),
		os:    f, stats: cfg.Chains, file: file,
	}, nil
}

// ready makes the ring. Where that fails, of descriptors for example, nothing has been begun: it is
// no failed sync. f.mu is locked.
func (f *ringFile) ready() (err error) {
	if f.ring != nil {
		return nil
	}
	f.ring, err = uring.New(uring.Config{Entries: 2 * MaxChain, InFlight: 2 * MaxChain})
	if err != nil {
		err = fmt.Errorf("nothing was begun: %w", err)
	}
	return err
}

// run chains the first n of f.ops and waits for all of them.
func (f *ringFile) run(n int) error {
	for i := range n {
		f.list[i] = &f.ops[i]
	}
	if err := f.ring.Chain(f.list[:n]...); err != nil {
		return err
	}
	if err := f.ring.Wait(n); err != nil {
		return err
	}
	for got := 0; got < n; {
		op := f.ring.Next()
		if op == nil {
			if err := f.ring.Wait(1); err != nil {
				return err
			}
			continue
		}
		f.script.judge(op)
		got++
	}
	return nil
}

// Sync makes everything durable, by an fsync on the ring.
func (f *ringFile) Sync() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return os.ErrClosed
	}
	if err := f.ready(); err != nil {
		return fmt.Errorf("sync %s: %w", f.path, err)
	}
	return f.poison.sync(f.path, func() error {
		f.ops[0].Fsync(f.file, true)
		if err := f.run(1); err != nil {
			return err
		}
		if err := f.ops[0].Err(); err != nil {
			return fmt.Errorf("sync %s: %w", f.path, err)
		}
		return nil
	})
}

// WriteSync implements [SyncWriter].
func (f *ringFile) WriteSync(b []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.one[0] = b
	p, err := f.chain(f.one[:], off, true)
	f.one[0] = nil
	return int(p.at - off), err
}

// WriteChain implements [ChainWriter].
func (f *ringFile) WriteChain(parts [][]byte, off int64, sync bool) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.chain(parts, off, sync)
	f.stats.add(len(parts), p.written, p.breaks, err)
	return p.written, err
}

// progress is how far the writing of parts has come.
type progress struct {
	written int // parts, whole
	skip    int // bytes written of the part after those
	at      int64
	synced  bool
	breaks  int
}

// chain writes parts and syncs after the last.
func (f *ringFile) chain(parts [][]byte, off int64, sync bool) (p progress, err error) {
	p.at = off
	switch first := f.poison.err.Load(); {
	case f.closed:
		return p, os.ErrClosed
	case off < 0:
		return p, negative("write", f.path, off)
	case sync && first != nil:
		return p, fmt.Errorf("write %s: %w: %w", f.path, ErrSyncFailed, *first)
	}
	end := off
	for _, b := range parts { // a sum beyond MaxInt64 would be an offset again
		if err := tooFar("write", f.path, len(b), end); err != nil {
			return p, err
		}
		end += int64(len(b))
	}
	if len(parts) == 0 && !sync {
		return p, nil
	}
	if err := f.ready(); err != nil {
		return p, &ChainError{Path: f.path, Parts: len(parts), Off: off, Err: err}
	}
	for tries := 0; p.written < len(parts) || sync && !p.synced; {
		before := p
		cause := f.chainOnce(parts, sync, &p)
		if cause == nil {
			continue
		}
		if p.at > before.at || p.written > before.written {
			tries = 0
		}
		failed := &ChainError{Path: f.path, Failed: p.written, Parts: len(parts), Off: p.at, Err: cause}
		switch tries++; {
		case p.written == len(parts): // the sync itself: final
			return p, f.poison.sync(f.path, func() error { return failed })
		case tries > maxTries, !again(cause) && !errors.Is(cause, io.ErrShortWrite):
			return p, failed
		}
		p.breaks++
	}
	return p, nil
}

// chainOnce sends one chain: what is left of the part under way, the parts behind it, as many as
// fit, and the sync behind the last. It moves p on by what was done.
func (f *ringFile) chainOnce(parts [][]byte, sync bool, p *progress) error {
	n := min(len(parts)-p.written, MaxChain)
	at, skip := p.at, p.skip
	for i := range n {
		b := parts[p.written+i][skip:]
		skip = 0
		f.bufs[i].Reset(b)
		// which the kernel refuses where os.File does not ask it
		if f.ops[i].Write(f.file, &f.bufs[i], at); len(b) == 0 {
			f.ops[i].Nop()
		}
		f.script.part(&f.ops[i], len(b))
		at += int64(len(b))
	}
	ops := n
	syncs := sync && p.written+n == len(parts)
	if syncs {
		f.ops[ops].Fsync(f.file, true)
		ops++
	}
	if err := f.run(ops); err != nil {
		return err
	}
	for i := range n {
		if err := f.ops[i].Err(); err != nil {
			return err
		}
		res := int(f.ops[i].Res)
		p.at += int64(res)
		if res < f.bufs[i].Len() { // and so the rest of the chain was cancelled
			p.skip += res
			return io.ErrShortWrite
		}
		p.skip = 0
		p.written++
	}
	if syncs {
		if err := f.ops[n].Err(); err != nil {
			return err
		}
		p.synced = true
	}
	return nil
}

// Close frees the ring and closes the file.
func (f *ringFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return os.ErrClosed
	}
	f.closed = true
	var err error
	if f.ring != nil {
		err = f.ring.Close()
	}
	return errors.Join(err, f.file.Close(), f.plain.Close())
}

// ringBatch is a batch on a ring of its own.
type ringBatch struct {
	f      *ringFile
	file   *uring.File // its own: a File belongs to one goroutine
	ring   *uring.Ring
	jobs   []ringJob
	free   []*ringJob
	closed bool
}

// ringJob is the ring's side of an operation.
type ringJob struct {
	op    uring.Op
	buf   uring.Buffer
	user  *Op
	tries int
}

func (f *ringFile) newBatch(cfg BatchConfig) (Batcher, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, os.ErrClosed
	}
	file, err := uring.FileOf(f.os)
	if err != nil {
		return nil, err
	}
	ring, err := uring.New(uring.Config{Entries: cfg.Depth, InFlight: cfg.Depth, Locked: cfg.Locked})
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	b := &ringBatch{f: f, file: file, ring: ring, jobs: make([]ringJob, cfg.Depth), free: make([]*ringJob, cfg.Depth)}
	for i := range b.jobs {
		b.jobs[i].op.Tag = uint64(i)
		b.free[i] = &b.jobs[i]
	}
	return b, nil
}

func (b *ringBatch) Submit(ops []Op) (int, error) { return submit(b, ops) }

func (b *ringBatch) SubmitOne(op *Op) error {
	switch {
	case b.closed:
		return os.ErrClosed
	case len(b.free) == 0:
		return ErrFull
	}
	if err := op.take(); err != nil {
		return err
	}
	j := b.free[len(b.free)-1]
	j.user, j.tries = op, 0
	op.N, op.Err = 0, nil
	if err := b.push(j); err != nil {
		op.taken = nil
		return err
	}
	b.free = b.free[:len(b.free)-1]
	return nil
}

// push sends what is left of an operation.
func (b *ringBatch) push(j *ringJob) error {
	u := j.user
	off := u.Off + int64(u.N)
	switch {
	case u.Kind == Sync:
		j.op.Fsync(b.file, true)
	case u.Kind > Sync:
		return fmt.Errorf("batch: kind %d", u.Kind)
	case off < 0:
		return negative("batch", b.f.path, off)
	default:
		if b.f.direct {
			if err := aligned("batch", b.f.path, u.Buf, u.Off); err != nil {
				return err
			}
		}
		j.buf.Reset(u.Buf[u.N:])
		switch {
		case j.buf.Len() == 0:
			j.op.Nop()
		case u.Kind == Read:
			j.op.Read(b.file, &j.buf, off)
		default:
			j.op.Write(b.file, &j.buf, off)
		}
		b.f.script.part(&j.op, j.buf.Len())
	}
	return b.ring.Push(&j.op)
}

func (b *ringBatch) Reap(done []*Op, wait int) ([]*Op, error) {
	if wait > b.InFlight() {
		return done, errWait
	}
	for first := true; first || wait > 0; first = false {
		if err := b.ring.Wait(min(max(wait, 0), b.InFlight())); err != nil {
			return done, err
		}
		for op := b.ring.Next(); op != nil; op = b.ring.Next() {
			j := &b.jobs[op.Tag]
			b.f.script.judge(op)
			if b.settle(j) {
				j.user.taken = nil
				done = append(done, j.user)
				j.user = nil
				b.free = append(b.free, j)
				wait--
			}
		}
	}
	return done, nil
}

// settle looks at what came of an operation, and sends the rest of it if it was cut short.
func (b *ringBatch) settle(j *ringJob) (ended bool) {
	u, res := j.user, int(j.op.Res)
	switch e := j.op.Err(); {
	case e != nil && again(e) && u.Kind != Sync:
	case e != nil:
		u.Err = e
		if u.Kind == Sync {
			u.Err = b.f.poison.sync(b.f.path, func() error { return fmt.Errorf("sync %s: %w", b.f.path, e) })
		}
		return true
	case u.Kind == Sync:
		u.Err = b.f.poison.sync(b.f.path, func() error { return nil })
		return true
	default:
		u.N += res
		if u.N == len(u.Buf) {
			return true
		}
		if u.Kind == Read && (res == 0 || b.f.direct && res%Align != 0) {
			u.Err = io.EOF
			return true
		}
		if res > 0 {
			j.tries = 0
		}
	}
	if j.tries++; j.tries > maxTries {
		u.Err = io.ErrNoProgress
		return true
	}
	u.Err = b.push(j) // what cannot go on has ended
	return u.Err != nil
}

func (b *ringBatch) InFlight() int { return len(b.jobs) - len(b.free) }
func (b *ringBatch) Depth() int    { return len(b.jobs) }

func (b *ringBatch) Close() error {
	if b.closed {
		return nil
	}
	b.closed = true
	if b.InFlight() > 0 {
		if _, err := b.Reap(nil, b.InFlight()); err != nil {
			return errors.Join(err, b.ring.Shutdown(nil), b.file.Close())
		}
	}
	return errors.Join(b.ring.Close(), b.file.Close())
}
