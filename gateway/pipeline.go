package gateway

import (
	"time"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/reader"
)

const pipelineStrategy = "pipeline"

// pipelineDepth is the number of chunks on their way between two stages, at most.
const pipelineDepth = 64

// pipeline is the strategy of four stages with a goroutine each: read → parse → validate → store. Chunks are pooled and
// handed on whole: a channel operation for each frame would cost ten times the work itself. It stands between the
// reader and the lane.
type pipeline struct {
	lane  *lane
	free  chan *chunk
	parse chan *chunk
	valid chan *chunk
	keep  chan *chunk
	done  chan struct{}
}

// chunk is what one read brought, and what the stages made of it.
type chunk struct {
	data   []byte // bytes of a read, copied out of the ring
	at     int64
	ends   bool
	why    frame.Cause // with ends: why nothing follows
	ops    []op
	frames []byte // frames cut out of this and earlier chunks, in order
}

// op is one call of the decoder's sink; n bytes of chunk.frames belong to it.
type op struct {
	kind  opKind
	n     int
	frame frame.Frame
}

type opKind uint8

const (
	opFrame opKind = iota
	opDamaged
	opSkip
)

func newPipeline(l *lane) *pipeline {
	p := &pipeline{
		lane: l, free: make(chan *chunk, pipelineDepth),
		parse: make(chan *chunk, pipelineDepth), valid: make(chan *chunk, pipelineDepth), keep: make(chan *chunk, pipelineDepth),
		done: make(chan struct{}),
	}
	for range pipelineDepth {
		p.free <- &chunk{}
	}
	go p.parseStage()
	go p.validateStage()
	go p.storeStage()
	return p
}

// Arrived implements reader.Handler: the read stage.
func (p *pipeline) Arrived(view []byte, fresh int, at int64) (int, bool) {
	l := p.lane
	l.mu.Lock()
	blocked := l.full()
	l.state = stateOpen
	if blocked {
		l.state = stateBlocked
	}
	l.book.Read(fresh)
	l.held += fresh
	l.mu.Unlock()
	p.send(view, at, func(c *chunk) { c.ends, c.why = l.cfg.UDP != nil, frame.Message })
	return len(view), !blocked
}

// Silent implements reader.Handler. Nothing is held here, so it is never called; silence is the parse stage's affair.
func (p *pipeline) Silent([]byte, int64) int { return 0 }

// Closed implements reader.Handler: it waits until the stages are empty.
func (p *pipeline) Closed(view []byte, at int64, err error) {
	p.send(view, at, func(c *chunk) { c.ends, c.why = true, frame.Closed })
	close(p.parse)
	<-p.done
	p.lane.Closed(nil, at, err)
}

func (p *pipeline) send(view []byte, at int64, mark func(*chunk)) {
	c := <-p.free
	c.reset(at)
	c.data = append(c.data, view...)
	mark(c)
	p.parse <- c
}

func (c *chunk) reset(at int64) {
	*c = chunk{data: c.data[:0], ops: c.ops[:0], frames: c.frames[:0], at: at}
}

// Frame implements frame.Sink for the parse stage, which writes down what the decoder says.
func (c *chunk) Frame(f *frame.Frame) {
	c.ops = append(c.ops, op{opFrame, len(f.Data), *f})
	c.frames = append(c.frames, f.Data...)
}

// Damaged implements frame.Sink.
func (c *chunk) Damaged() { c.ops = append(c.ops, op{kind: opDamaged}) }

// Skip implements frame.Sink.
func (c *chunk) Skip(b []byte) {
	c.ops = append(c.ops, op{kind: opSkip, n: len(b)})
	c.frames = append(c.frames, b...)
}

func (p *pipeline) parseStage() {
	dec := p.lane.dec
	var rest []byte // not classified yet
	pause := time.NewTimer(time.Hour)
	defer pause.Stop()
	for {
		var silence <-chan time.Time
		if len(rest) > 0 && dec.Silence() > 0 {
			pause.Reset(dec.Silence())
			silence = pause.C
		}
		var c *chunk
		select {
		case next, ok := <-p.parse:
			if !ok {
				close(p.valid)
				return
			}
			c = next
		case now := <-silence:
			c = <-p.free
			c.reset(now.UnixNano())
			c.ends, c.why = true, frame.Silence
		}
		rest = append(rest, c.data...)
		done := dec.Decode(rest, c)
		if c.ends {
			dec.Break(rest[done:], c.why, c)
			done = len(rest)
		}
		rest = rest[:copy(rest, rest[done:])]
		p.valid <- c
	}
}

func (p *pipeline) validateStage() {
	l := p.lane
	for c := range p.valid {
		l.mu.Lock()
		at := 0
		for i := range c.ops {
			o := &c.ops[i]
			switch data := c.frames[at : at+o.n]; o.kind {
			case opFrame:
				o.frame.Data = data
				l.post(&o.frame)
				l.between++
			case opDamaged:
				l.Damaged()
			case opSkip:
				l.now = c.at
				l.Skip(data)
			}
			at += o.n
			l.held -= o.n
		}
		l.mu.Unlock()
		p.keep <- c
	}
	close(p.keep)
}

func (p *pipeline) storeStage() {
	l := p.lane
	for c := range p.keep {
		l.mu.Lock()
		l.now = c.at
		l.drain()
		for i := range c.ops {
			if o := &c.ops[i]; o.kind == opFrame {
				l.between--
				l.store(&o.frame)
				o.frame.Data = nil
			}
		}
		l.mu.Unlock()
		p.free <- c
	}
	close(p.done)
}

var _ reader.Handler = (*pipeline)(nil)
