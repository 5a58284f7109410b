package tap

import (
	"errors"
	"io"
	"sync"

	"github.com/tallywheel/tallywheel/recorder"
)

// Bounds of what waits to be shown. What comes beyond is counted, and not shown.
const (
	maxEvents = 16 << 10
	maxBytes  = 1 << 20
)

// kind is what an item of the queue is.
type kind uint8

const (
	aFrame kind = iota
	aDamage
	someBytes
	portOpen
	portGone
	portAbsent
	aNote  // text, said by whoever runs the tap
	aTurn  // what follows is framed in another way
	unseen // frames that found no place here
)

// item is one event, kept until it is shown.
type item struct {
	kind     kind
	at       int64
	part     recorder.Part
	lead     bool   // bytes and damage before the first frame since the port was opened
	from, to int    // its bytes, in batch.bytes
	numbered bool   // aFrame, as device, epoch, number and deviceTime
	device   uint32 //
	epoch    uint32
	number   uint64
	devTime  int64
	fate     recorder.Fate
	text     string // portOpen: the device; aNote
	bad      bool   // aNote, portGone: something is lost, or may be
	err      error  // portGone, portAbsent
	waits    bool   // portAbsent: it may come
	counts   unshown
}

// unshown is what is not shown because whoever reads is too slow.
type unshown struct{ frames, bytes, missing uint64 }

// batch is items with their bytes.
type batch struct {
	items []item
	bytes []byte
}

// Counts is what came, shown or not.
type Counts struct {
	Frames     uint64 `json:"frames"`     // valid ones
	Bytes      uint64 `json:"bytes"`      // … and what they have
	Damaged    uint64 `json:"damaged"`    // frames that failed their check
	Stray      uint64 `json:"stray"`      // bytes in no frame
	Missing    uint64 `json:"missing"`    // numbers that were passed over
	Late       uint64 `json:"late"`       // … and came after all
	Repeated   uint64 `json:"repeated"`   // frames whose number had come before
	CutBytes   uint64 `json:"cut_bytes"`  // of frames that were under way at the beginning and at the end
	Unanswered uint64 `json:"unanswered"` // requests that the next one followed, or nothing in time
	Outages    uint64 `json:"outages"`    // times the port was lost, but for the ordinary end of a connection
	NotShown   uint64 `json:"not_shown"`  // frames

	leadBytes, leadOf uint64 // since the port was opened: bytes and damage before the first frame
	plain             uint64 // frames without numbers
	answers           uint64 // to requests
}

// Bad reports whether something was lost or damaged. Where all frames have numbers, these say what
// an outage has cost.
func (c Counts) Bad() bool {
	return c.Damaged > 0 || c.Stray > 0 || c.Missing > c.Late || c.Unanswered > 0 && c.answers > 0 ||
		c.Outages > 0 && c.plain > 0
}

// onlyGone reports whether nothing but outages is bad.
func (c Counts) onlyGone() bool {
	c.Outages = 0
	return !c.Bad()
}

// queue stands between the reader, which must not wait, and the printer, which may be slow. It
// implements recorder.Watcher.
type queue struct {
	news    chan struct{} // has a signal when there is something in it
	reached chan struct{} // closed with the frame that count asks for
	failed  chan error    // has the reason if the port cannot be opened at first
	count   uint64        // 0: no end
	waits   bool          // for a port that is not there at first
	line    bool          // a serial line has no ordinary end

	mu     sync.Mutex
	max    int // longest frame, in bytes
	now    *batch
	spare  *batch
	counts Counts
	heard  bool // a frame has come since the port was opened
	opened bool // the port has been open
	full   bool // count has come: what follows is not looked at
	ended  bool // nothing more comes
}

func newQueue(count uint64) *queue {
	return &queue{
		news: make(chan struct{}, 1), reached: make(chan struct{}), failed: make(chan error, 1), count: count,
		now: &batch{}, spare: &batch{},
	}
}

// framing says how long frames are from now on.
func (q *queue) framing(maxBytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.max = maxBytes
}

// Watch implements recorder.Watcher.
func (q *queue) Watch(e recorder.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := item{at: e.At, part: e.Part, err: e.Err}
	if q.full {
		return
	}
	switch e.Kind {
	case recorder.SawFrame:
		q.frame(e, i)
	case recorder.SawDamage:
		i.kind, i.lead = aDamage, !q.heard
		q.harm(i, 0)
		q.put(i, nil)
	case recorder.SawBytes:
		i.kind, i.lead = someBytes, !q.heard
		q.harm(i, len(e.Data))
		q.put(i, e.Data)
	case recorder.PortOpen:
		i.kind, i.text = portOpen, e.Device
		q.opens()
		q.put(i, nil)
	case recorder.Turned:
		i.kind = aTurn
		q.put(i, nil)
	case recorder.NoAnswer:
		q.counts.Unanswered++
		q.put(item{kind: aNote, at: e.At, bad: true, text: "no answer to the last request yet"}, nil)
	case recorder.PortGone:
		i.kind, i.bad = portGone, q.line || !errors.Is(e.Err, io.EOF)
		if i.bad {
			q.counts.Outages++
		}
		q.put(i, nil)
	case recorder.PortAbsent:
		i.kind = portAbsent
		if i.waits = q.opened || q.waits || errors.Is(e.Err, recorder.ErrNotConnected); !i.waits {
			select {
			case q.failed <- e.Err:
			default:
			}
		}
		q.put(i, nil)
	}
}

func (q *queue) frame(e recorder.Event, i item) {
	f := e.Frame
	i.kind, i.fate = aFrame, e.Fate
	i.numbered, i.device, i.epoch, i.number, i.devTime = f.Sequenced, f.Device, f.Epoch, f.Seq, f.DeviceTime
	if !q.heard {
		q.heard = true
		q.lead()
	}
	c := &q.counts
	c.Frames++
	c.Bytes += uint64(len(f.Data))
	c.Missing += e.Fate.Missing
	if e.Fate.Late {
		c.Late++
	}
	if e.Fate.Repeated {
		c.Repeated++
	}
	if e.Fate.Unanswered {
		c.Unanswered++
	}
	if e.Fate.AnsweredLate {
		c.Unanswered--
	}
	if f.Answers {
		c.answers++
	}
	q.put(i, f.Data)
	if !f.Sequenced {
		c.plain++
	}
	if c.Frames == q.count {
		q.full = true
		close(q.reached)
	}
}

// opens begins the time in which the first frame is waited for.
func (q *queue) opens() {
	q.opened = true
	q.lead()
	q.heard = false
}

// lead counts what came before a first frame: it may be the end of one frame, but no more.
func (q *queue) lead() {
	c := &q.counts
	if c.leadOf > 1 || c.leadBytes > uint64(q.max) {
		c.Damaged += c.leadOf
		c.Stray += c.leadBytes
	} else {
		c.CutBytes += c.leadBytes
	}
	c.leadBytes, c.leadOf = 0, 0
}

// harm counts damage, and bytes in no frame.
func (q *queue) harm(i item, n int) {
	c, damage := &q.counts, uint64(0)
	if i.kind == aDamage {
		damage = 1
	}
	switch {
	case !q.heard:
		c.leadBytes += uint64(n)
		c.leadOf += damage
	case i.part == recorder.AtStop:
		c.CutBytes += uint64(n)
	default:
		c.Stray += uint64(n)
		c.Damaged += damage
	}
}

// put keeps an item. mu is held.
func (q *queue) put(i item, data []byte) {
	b := q.now
	shows := i.kind == aFrame || i.kind == aDamage || i.kind == someBytes
	if last := len(b.items) - 1; i.kind == someBytes && last >= 0 && len(b.bytes)+len(data) <= maxBytes {
		if l := &b.items[last]; l.kind == someBytes && l.part == i.part && l.lead == i.lead && l.at == i.at {
			b.bytes = append(b.bytes, data...)
			l.to = len(b.bytes)
			return
		}
	}
	if shows && (len(b.items) >= maxEvents || len(b.bytes)+len(data) > maxBytes) {
		q.leaveOut(i, len(data))
		return
	}
	if len(b.items) >= 2*maxEvents { // a port that comes and goes without end
		return
	}
	i.from, i.to = len(b.bytes), len(b.bytes)+len(data)
	b.bytes = append(b.bytes, data...)
	b.items = append(b.items, i)
	select {
	case q.news <- struct{}{}:
	default:
	}
}

// leaveOut counts what is not shown, where it would have been.
func (q *queue) leaveOut(i item, n int) {
	b := q.now
	if last := len(b.items) - 1; b.items[last].kind != unseen {
		b.items = append(b.items, item{kind: unseen, at: i.at})
	}
	c := &b.items[len(b.items)-1].counts
	if i.kind == aFrame {
		c.frames++
		q.counts.NotShown++
	}
	c.bytes += uint64(n)
	c.missing += i.fate.Missing
}

// note says something among the frames.
func (q *queue) note(at int64, bad bool, text string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.put(item{kind: aNote, at: at, bad: bad, text: text}, nil)
}

// end says that nothing more comes.
func (q *queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return
	}
	q.ended = true
	q.lead()
	select {
	case q.news <- struct{}{}:
	default:
	}
}

// take returns what has come since it was last called, and whether that is all there will be. What
// it returned before is used again.
func (q *queue) take() (b *batch, last bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b = q.now
	q.now, q.spare = q.spare, b
	q.now.items, q.now.bytes = q.now.items[:0], q.now.bytes[:0]
	return b, q.ended
}

// Counts returns what has come so far.
func (q *queue) total() Counts {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.counts
}

// giveUp counts frames as not shown that were taken, and cannot be shown any more.
func (q *queue) giveUp(frames uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.counts.NotShown += frames
}
