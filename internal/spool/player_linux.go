package spool

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// Handler is what package reader shows the bytes of a port to, a reader.Handler: what classifies
// bytes right where they are read does the same behind a spool.
type Handler interface {
	Arrived(view []byte, fresh int, at int64) (done int, more bool)
	Silent(view []byte, at int64) (done int)
	Closed(view []byte, at int64, err error)
}

// ErrEnded is given to Handler.Closed where the producer gave the wire up ([Ended]).
var ErrEnded = errors.New("the wire was given up")

// ErrReplaced is given to Handler.Closed where a newer connection took over ([Replaced]).
var ErrReplaced = errors.New("a newer connection took over")

// Player shows a spool to a handler, mark by mark. It looks at no clock: where a handler was
// restored from what it had saved with a checkpoint, it gets the same calls again, with the same
// bytes and times.
type Player struct {
	from   *Consumer
	to     Handler
	paused bool
}

// Play shows what the consumer holds, if it goes on from a checkpoint: none of it is fresh.
func (c *Consumer) Play(to Handler) (*Player, error) {
	p := &Player{from: c, to: to}
	view, err := c.Held()
	if len(view) > 0 {
		p.show(view, 0)
	}
	return p, err
}

// Next shows the next mark, and returns it: one that says something else of the device than a
// Handler takes ([Opened], [Lost], [Counted]) is the caller's. ok is false where there is none yet,
// and while the handler pauses.
func (p *Player) Next() (m Mark, ok bool, err error) {
	if p.paused {
		return m, false, nil
	}
	shown := p.from.Point().Shown
	m, view, ok, err := p.from.Next()
	if err != nil || !ok {
		return m, false, err
	}
	switch m.Kind {
	case Chunk, Message:
		p.show(view, int(m.At-shown))
	case Silent:
		if len(view) > 0 {
			p.from.Done(p.to.Silent(view, m.Time))
		}
	case Closed, Ended:
		err := error(io.EOF)
		switch {
		case m.Kind == Ended:
			err = ErrEnded
		case m.A == Replaced:
			err = ErrReplaced
		case m.A != 0:
			err = os.NewSyscallError("read", syscall.Errno(m.A))
		}
		p.to.Closed(view, m.Time, err)
		p.from.Done(len(view))
	}
	return m, true, nil
}

// Paused reports whether the handler has not taken yet what it was shown last. A checkpoint does
// not know that.
func (p *Player) Paused() bool { return p.paused }

// Resume lets a handler go on that paused: it is shown again what it holds, which may be an empty
// message.
func (p *Player) Resume() error {
	if !p.paused {
		return nil
	}
	view, err := p.from.Held()
	if err == nil {
		p.show(view, 0)
	}
	return err
}

func (p *Player) show(view []byte, fresh int) {
	done, more := p.to.Arrived(view, fresh, p.from.Point().Time)
	p.from.Done(done)
	p.paused = !more
}
