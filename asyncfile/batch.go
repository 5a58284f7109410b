package asyncfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// Kind is what an operation of a batch does.
type Kind uint8

// The kinds.
const (
	Read Kind = iota
	Write
	Sync // covers the writes that Reap has returned
)

// Op is one operation of a batch. From Submit until Reap has returned it, neither it nor its bytes
// may be touched.
type Op struct {
	Kind Kind
	Buf  []byte
	Off  int64
	Tag  uint64 // the caller's own

	N   int   // bytes done: as many as Buf has, or Err says why not
	Err error // io.EOF at the end of the file, as io.ReaderAt says

	taken *Op // itself, from Submit to Reap: a copy is another operation
}

// take marks an operation as a batch's, or says why it cannot be.
func (op *Op) take() error {
	switch {
	case op == nil:
		return errors.New("batch: no operation")
	case op.taken == op:
		return fmt.Errorf("batch: operation: %w", ErrBusy)
	}
	op.taken = op
	return nil
}

// Batcher keeps many operations of one file in flight. It belongs to one goroutine.
type Batcher interface {
	// Submit takes operations, as many as there is room for, and returns how many those were. They
	// begin with the next call of Reap at the latest. An error is of the first that was not taken.
	Submit(ops []Op) (int, error)
	// SubmitOne submits one operation, one that Reap returned for example: ErrFull if there is no
	// room, ErrBusy if it has been submitted and Reap has not returned it.
	SubmitOne(op *Op) error
	// Reap waits until at least wait of the operations submitted have ended, appends all that have
	// to done, in the order in which they ended, and returns it. Reap(done, 0) waits for nothing,
	// and starts what was submitted.
	Reap(done []*Op, wait int) ([]*Op, error)
	// InFlight is the number of operations taken and not yet returned by Reap.
	InFlight() int
	// Depth is the most that can be in flight.
	Depth() int
	// Close waits for what is in flight and frees the batch; the file stays open.
	Close() error
}

// BatchConfig says how a batch is made. The zero value is ready to use.
type BatchConfig struct {
	Depth int // operations in flight; 0 means 64
	// Locked says that the caller has locked its goroutine to its thread, and calls every method
	// from there. It pays where Reap waits for several at a time (5 % more reads at depth 64, 16 at
	// a time); with one at a time at depth 8 it costs a quarter more CPU. See uring.Config.
	Locked bool
}

const defaultDepth = 64

// Errors of a batch that callers act on.
var (
	// ErrFull: as many operations are in flight as the batch has depth.
	ErrFull = errors.New("the batch is full")
	// ErrBusy: the operation is a batch's already.
	ErrBusy = errors.New("in flight")
)

// errWait is a wait that would never end.
var errWait = errors.New("reap: fewer operations are in flight than are waited for")

// NewBatch makes a batch for a file of this package: on a ring of its own for the uring backend, by
// as many goroutines as the depth for the others. The file must outlive the batch.
func NewBatch(f File, cfg BatchConfig) (Batcher, error) {
	if cfg.Depth == 0 {
		cfg.Depth = defaultDepth
	}
	if cfg.Depth < 1 || cfg.Depth > maxDepth {
		return nil, fmt.Errorf("batch of depth %d: want 1 to %d", cfg.Depth, maxDepth)
	}
	if f == nil {
		return nil, errors.New("batch: no file")
	}
	if r, ok := f.(interface {
		newBatch(cfg BatchConfig) (Batcher, error)
	}); ok {
		return r.newBatch(cfg)
	}
	return newPool(f, cfg.Depth), nil
}

// submit takes operations until one is refused.
func submit(b Batcher, ops []Op) (int, error) {
	for i := range ops {
		if err := b.SubmitOne(&ops[i]); err == ErrFull {
			return i, nil
		} else if err != nil {
			return i, err
		}
	}
	return len(ops), nil
}

// pool is a batch by goroutines, one for each operation in flight.
type pool struct {
	f        File
	depth    int
	inFlight int
	todo     chan *Op
	ended    chan *Op
	workers  sync.WaitGroup
}

func newPool(f File, depth int) *pool {
	todo, ended := make(chan *Op, depth), make(chan *Op, depth)
	p := &pool{f: f, depth: depth, todo: todo, ended: ended}
	for range depth {
		p.workers.Go(func() {
			for op := range todo {
				p.run(op)
				ended <- op
			}
		})
	}
	return p
}

func (p *pool) run(op *Op) {
	switch op.Kind {
	case Read:
		op.N, op.Err = p.f.ReadAt(op.Buf, op.Off)
		if op.N == len(op.Buf) && op.Err == io.EOF {
			op.Err = nil
		}
	case Write:
		op.N, op.Err = p.f.WriteAt(op.Buf, op.Off)
	case Sync:
		op.N, op.Err = 0, p.f.Sync()
	default:
		op.N, op.Err = 0, fmt.Errorf("batch: kind %d", op.Kind)
	}
}

func (p *pool) Submit(ops []Op) (int, error) { return submit(p, ops) }

func (p *pool) SubmitOne(op *Op) error {
	switch {
	case p.todo == nil:
		return os.ErrClosed
	case p.inFlight == p.depth:
		return ErrFull
	}
	if err := op.take(); err != nil {
		return err
	}
	p.todo <- op
	p.inFlight++
	return nil
}

func (p *pool) Reap(done []*Op, wait int) ([]*Op, error) {
	if wait > p.inFlight {
		return done, errWait
	}
	for ; p.inFlight > 0; wait-- {
		var op *Op
		if wait > 0 {
			op = <-p.ended
		} else {
			select {
			case op = <-p.ended:
			default:
				return done, nil
			}
		}
		op.taken = nil
		done = append(done, op)
		p.inFlight--
	}
	return done, nil
}

func (p *pool) InFlight() int { return p.inFlight }
func (p *pool) Depth() int    { return p.depth }

func (p *pool) Close() error {
	if p.todo != nil {
		close(p.todo)
		p.todo = nil
	}
	p.workers.Wait()
	_, err := p.Reap(nil, p.inFlight) // nobody asks for them any more
	return err
}
