package spool

import (
	"encoding/binary"
	"fmt"
)

// intent is the read that a producer was about to do.
type intent struct {
	at, marks uint64 // where the producer stood
	time      Moment
	kind      Kind // 0: there is none
	most      uint64
	whole     bool // it takes most bytes, or none
	passed    bool // a relay has them
}

func (p *Producer) intended() intent {
	armed := p.armed.Load()
	word := func(i int) uint64 { return binary.NativeEndian.Uint64(p.intent[8*i:]) }
	return intent{
		at: word(0), marks: word(1), time: Moment{Wall: int64(word(2)), Steady: int64(word(3))},
		kind: Kind(uint32(armed)) &^ (whole | passed), most: armed >> 32, whole: armed&whole != 0,
		passed: armed&passed != 0,
	}
}

// recover goes on where another producer has ended, at whatever step. It may itself be killed at
// any step: then the next does the same.
func (p *Producer) recover(given Given) error {
	if in := p.intended(); in.kind != 0 {
		p.recovered.CutOff = true
		switch n := p.published - in.marks; {
		case n > 2: // those of a read and of what is uncertain
			return fmt.Errorf("spool: a read %+v, with %d marks published: %w", in, p.published, ErrCorrupt)
		case n == 0 && !in.passed:
			if err := p.salvage(in, given); err != nil {
				return err
			}
		}
		if err := p.catchUp(in.most); err != nil {
			return err
		}
		p.armed.Store(0)
	} else if err := p.catchUp(0); err != nil {
		return err
	}
	p.laid = p.Position()
	return nil
}

// salvage writes the marks of a read that nobody was told of, if there was one.
func (p *Producer) salvage(in intent, given Given) error {
	space, err := p.ring.Space(int(min(in.most, uint64(p.spool.Size()))))
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	if in.at != p.Position() || in.most > uint64(len(space)) || in.kind != Chunk && in.kind != Message {
		return fmt.Errorf("spool: a read %+v at offset %d, with %d bytes free: %w", in, p.Position(), len(space),
			ErrCorrupt)
	}
	if err := p.slots(2); err != nil {
		return fmt.Errorf("spool: no room for the marks of a read, which it had: %w", ErrCorrupt)
	}
	n, left := in.taken(p.spool.key.written(space[:in.most], in.at), given)
	p.recovered.Bytes, p.recovered.Uncertain = n, left
	end := in.at + uint64(n)
	if n > 0 {
		p.write(Mark{At: end, Time: in.time.Wall, Kind: in.kind, A: uint32(n), B: uint64(in.time.Steady)})
	}
	if left > 0 {
		p.write(Mark{At: end, Time: in.time.Wall, Kind: Lost, A: Uncertain, B: uint64(left)})
	}
	p.publish()
	return nil
}

// taken is how many bytes a read took, and how many more it may have taken, where the last that
// differs from the pattern is byte n.
func (in intent) taken(n int, given Given) (took, uncertain int) {
	if given != nil {
		if offset, ok := given(); ok && offset-in.at <= in.most && offset-in.at >= uint64(n) {
			return int(offset - in.at), 0
		}
	}
	left := int(in.most) - n
	switch {
	case !in.whole:
		return n, min(left, doubt)
	case n == 0 && left < doubt: // it took none, or those that the pattern has
		return 0, left
	case n > 0 && left < doubt: // it took all, and the last are those of the pattern
		return n + left, 0
	}
	return n, 0
}

// catchUp publishes the bytes that the last mark tells of: at most so many are not published.
func (p *Producer) catchUp(most uint64) error {
	var end uint64
	if p.published > 0 {
		end = markOf(p.spool.mark(p.published - 1)).At
	}
	n := end - p.Position()
	if n > most {
		return fmt.Errorf("spool: the last mark is behind offset %d, the bytes end at %d: %w", end, p.Position(),
			ErrCorrupt)
	}
	space, err := p.ring.Space(int(n))
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	if n > uint64(len(space)) {
		return fmt.Errorf("spool: the last mark is behind offset %d, %d bytes from %d on are free: %w", end, len(space),
			p.Position(), ErrCorrupt)
	}
	p.ring.Publish(int(n))
	p.step()
	return nil
}
