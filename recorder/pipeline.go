package recorder

import (
	"time"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/reader"
	"github.com/tallywheel/tallywheel/seglog"
)

// pipelineDepth is the number of chunks on their way between two stages, at most.
const pipelineDepth = 64

// lookAgain is how soon the parse stage looks again whether a line is silent.
const lookAgain = time.Millisecond

// pipeline is the strategy of four stages with a goroutine each: read → parse → validate → store.
// Chunks are pooled and handed on whole: a channel operation for each frame would cost ten times
// the work itself. It stands between the reader and the lane.
type pipeline struct {
	lane  *lane
	free  chan *chunk
	quiet chan *chunk // the one for silences
	parse chan *chunk
	valid chan *chunk
	keep  chan *chunk
	done  chan struct{}
	rest  []byte // what the parse stage had not classified at its end
}

// chunk is what one read brought, and what the stages made of it.
type chunk struct {
	home   chan *chunk // where it waits to be used again
	data   []byte      // bytes of a read, copied out of the ring
	at     int64
	heard  time.Time     // at, by the clock that nobody sets
	pause  time.Duration // of the line, which made the decoder look again
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
		lane: l, free: make(chan *chunk, pipelineDepth), quiet: make(chan *chunk, 1),
		parse: make(chan *chunk, pipelineDepth), valid: make(chan *chunk, pipelineDepth),
		keep: make(chan *chunk, pipelineDepth),
		done: make(chan struct{}),
	}
	for range pipelineDepth {
		p.free <- &chunk{home: p.free}
	}
	p.quiet <- &chunk{home: p.quiet}
	go p.parseStage()
	go p.bookStage()
	go p.storeStage()
	return p
}

// Arrived implements reader.Handler: the read stage.
func (p *pipeline) Arrived(view []byte, fresh int, at int64) (int, bool) {
	more := p.lane.took(fresh)
	p.send(view, at, func(c *chunk) { c.ends, c.why = p.lane.in.messages, frame.Message })
	return len(view), more
}

// Silent implements reader.Handler. Nothing is held here, so it is never called; silence is the
// parse stage's affair.
func (p *pipeline) Silent([]byte, int64) int { return 0 }

// Closed implements reader.Handler: it waits until the stages are empty.
func (p *pipeline) Closed(view []byte, at int64, err error) {
	goesOn := p.lane.isLeaving()
	p.send(view, at, func(c *chunk) { c.ends, c.why = !goesOn, frame.Closed })
	close(p.parse)
	<-p.done
	p.lane.Closed(p.rest, at, err)
}

func (p *pipeline) send(view []byte, at int64, mark func(*chunk)) {
	c := <-p.free
	c.reset(at)
	c.heard = time.Now()
	c.data = append(c.data, view...)
	mark(c)
	p.parse <- c
}

func (c *chunk) reset(at int64) {
	*c = chunk{home: c.home, data: c.data[:0], ops: c.ops[:0], frames: c.frames[:0], at: at}
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
	dec := p.lane.in.dec // nobody else asks it while the pipeline runs
	var rest []byte      // not classified yet
	var last int64       // when its last byte was read
	var since int64      // … and its first
	var heard time.Time  // the same
	var waits []time.Duration
	var looks int // … and how often the line was found silent since
	pause := time.NewTimer(time.Hour)
	defer pause.Stop()
	for {
		var silent <-chan time.Time
		if len(rest) > 0 && len(waits) > 0 && waits[0] > 0 {
			pause.Reset(max(waits[0]-time.Since(heard), time.Duration(looks)*lookAgain))
			silent = pause.C
		}
		var c *chunk
		done := 0
		select {
		case next, ok := <-p.parse:
			if !ok {
				p.rest = rest
				close(p.valid)
				return
			}
			c, looks = next, 0
			last, heard, waits = c.at, c.heard, []time.Duration{dec.Silence(), patience(dec)}
			if len(rest) == 0 {
				since = last
			}
			since = min(since, last) // somebody set the clock
			rest = append(rest, c.data...)
			done = dec.Decode(rest, c)
			if c.ends {
				dec.Break(rest[done:], c.why, c)
				done = len(rest)
			}
		case <-silent:
			// A line whose bytes wait to be read is not silent, nor one whose bytes are on their
			// way here: a recorder that stood still itself would cut a frame in two.
			if len(p.parse) > 0 || p.lane.isFollowed() {
				looks = 1
				continue
			}
			if looks++; looks < 2 { // they may have been between the reader and the first look
				continue
			}
			looks = 0
			c = <-p.quiet // the others may all wait to be parsed
			c.reset(last)
			c.pause = time.Since(heard)
			done = silence(dec, rest, waits[0], time.Duration(last-since)+waits[0], c)
			waits = waits[1:]
		}
		if done > 0 {
			since = last
		}
		rest = rest[:copy(rest, rest[done:])]
		p.valid <- c
	}
}

func (p *pipeline) bookStage() {
	for c := range p.valid {
		p.lane.classified(c)
		p.keep <- c
	}
	close(p.keep)
}

func (p *pipeline) storeStage() {
	for c := range p.keep {
		p.lane.store(c)
		c.home <- c
	}
	close(p.done)
}

// What the stages do to their lane.

// took posts bytes that a pipeline has read and will classify later, and reports whether it may
// read more.
func (l *lane) took(fresh int) (more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	blocked := l.out.full()
	if l.state == ledger.StateBlocked && !blocked {
		l.in.restart()
	}
	l.state = ledger.StateOpen
	if blocked {
		l.state = ledger.StateBlocked
	}
	l.in.book.Read(fresh)
	l.in.held += fresh
	l.parsing += uint64(fresh)
	return !blocked
}

// isFollowed reports whether the kernel holds bytes that nobody has read yet.
func (l *lane) isFollowed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.device != nil && l.device.waiting()
}

// classified posts what a pipeline's decoder made of a chunk. Its frames are between here and
// store.
func (l *lane) classified(c *chunk) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.in.book.At(c.at)
	l.in.now, l.in.part = c.at, InFlow
	at := 0
	for i := range c.ops {
		o := &c.ops[i]
		switch data := c.frames[at : at+o.n]; o.kind {
		case opFrame:
			o.frame.Data = data
			l.in.post(&o.frame)
			l.out.between++
		case opDamaged:
			l.in.Damaged()
		case opSkip:
			l.in.Skip(data)
		}
		at += o.n
		l.in.held -= o.n
	}
	l.in.bury()
	l.in.beat(len(c.data), c.pause)
	l.parsing -= uint64(len(c.data))
}

// store brings the frames of a pipeline's chunk into the log.
func (l *lane) store(c *chunk) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.in.now = c.at
	l.in.book.At(c.at)
	l.out.drain()
	for i := range c.ops {
		if o := &c.ops[i]; o.kind == opFrame {
			l.out.between--
			l.out.store(&o.frame, c.at, seglog.NoOffset)
			o.frame.Data = nil
		}
	}
}

var _ reader.Handler = (*pipeline)(nil)
