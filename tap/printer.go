package tap

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/recorder"
)

const (
	// writeAt is when lines are written while more are made. A write has whole lines.
	writeAt = 32 << 10
	// shownDamage is how many bytes of a piece of damage are shown.
	shownDamage = 1 << 10
	// Bytes in no frame come in pieces, and are one line: so long, at least and at most, more are
	// waited for. A decoder that is patient gives up the first byte long before the others.
	togetherLeast = 50 * time.Millisecond
	togetherMost  = time.Second
)

// facts is what the printer needs to know of a framing.
type facts struct {
	name     string        // as --frame takes it
	bits     int           // of the check value
	waits    bool          // a silence ends frames
	together time.Duration // bytes that come so long after others in no frame belong to them
}

func factsOf(name string, d frame.Decoder) facts {
	f := facts{name: name, bits: frame.EvidenceOf(d).CheckBits, waits: d.Silence() > 0, together: togetherLeast}
	if p, ok := d.(frame.Patient); ok {
		f.together = min(max(togetherLeast, p.Patience()), togetherMost)
	}
	return f
}

// damage names what is wrong with bytes in no frame.
func (f facts) damage(marks int, part recorder.Part, lead bool) string {
	wrong, cut := "malformed", "cut"
	if f.bits >= 16 {
		wrong = "CRC wrong"
	} else if f.bits > 0 {
		wrong = "checksum wrong"
	}
	switch {
	case part == recorder.AtStop:
		return "cut, as the tap ends"
	case lead:
		return "before the first frame"
	case marks == 0:
		return "between frames"
	case part == recorder.AtGone:
		return "cut, as the port is gone"
	case part == recorder.InFlow || part == recorder.AtMessage && f.bits > 0:
		cut = wrong
	case f.waits && f.bits > 0:
		cut = wrong + ", or cut"
	}
	if marks > 1 {
		cut = fmt.Sprintf("%d times %s", marks, cut)
	}
	return cut
}

// printer makes lines of what the queue brings and writes them. It runs on a goroutine of its own,
// so that only it waits for whoever reads.
type printer struct {
	q       *queue
	out     io.Writer
	format  format
	facts   facts
	turns   chan facts  // of the next turn; it has them before that comes
	search  *search     // nil: the framing is given
	late    atomic.Bool // nothing is shown any more: only counted
	buf     []byte
	last    int64    // when bytes came last; 0: none have
	hurt    *line    // bytes in no frame that more may follow
	told    string   // why the port is absent
	intro   []string // said once the port is open, or waited for
	unshown unshown  // since late
}

// run writes until the queue ends or a write fails.
func (p *printer) run() error {
	more := time.NewTimer(0)
	defer more.Stop()
	for {
		b, end := p.q.take()
		for i := range b.items {
			p.item(&b.items[i], b.bytes)
			if len(p.buf) >= writeAt {
				if err := p.write(); err != nil {
					return err
				}
			}
		}
		if end {
			p.settle()
			if p.unshown.frames > 0 {
				p.buf = p.format.unseen(p.buf, &line{item: item{at: p.last, counts: p.unshown}, gap: -1})
			}
		}
		if err := p.write(); err != nil || end {
			p.q.giveUp(p.unshown.frames)
			return err
		}
		if p.hurt != nil {
			more.Reset(p.facts.together)
		}
		select {
		case <-p.q.news:
		case <-more.C:
			p.settle()
		}
	}
}

func (p *printer) write() error {
	if len(p.buf) == 0 {
		return nil
	}
	_, err := p.out.Write(p.buf)
	p.buf = p.buf[:0]
	return err
}

func (p *printer) item(i *item, all []byte) {
	l := &line{item: *i, data: all[i.from:i.to], frame: p.facts.name}
	if i.kind != aDamage && i.kind != someBytes {
		p.settle()
	}
	switch i.kind {
	case aFrame:
		p.frame(l)
	case aDamage:
		p.settle()
		p.begin(l)
		p.hurt.marks = 1
	case someBytes:
		p.bytes(l)
	case unseen:
		p.last = 0
		p.search.lost()
		p.buf = p.format.unseen(p.buf, l)
	case aTurn:
		p.facts = <-p.turns
		p.search.turned(p.facts.name)
	case portOpen:
		p.opened(l)
	case portGone:
		why := "the connection has ended"
		if i.bad {
			why = "the port is gone"
		}
		if !errors.Is(i.err, io.EOF) {
			why += ": " + i.err.Error()
		}
		p.say(l, i.bad, why+"; waiting for it")
		p.search.lost()
	case portAbsent:
		p.absent(l)
	case aNote:
		p.buf = p.format.note(p.buf, l)
	}
}

// absent says why the port cannot be opened. Before it was open that may be the end, which others
// explain.
func (p *printer) absent(l *line) {
	if !l.waits {
		return
	}
	p.introduce(l)
	if why := l.err.Error(); why != p.told {
		p.told = why
		p.say(l, false, why+"; waiting")
	}
}

func (p *printer) introduce(l *line) {
	for _, text := range p.intro {
		p.say(l, false, text)
	}
	p.intro = nil
}

func (p *printer) opened(l *line) {
	p.introduce(l)
	p.told = ""
	p.say(l, false, "open: "+l.text)
}

func (p *printer) frame(l *line) {
	if p.late.Load() {
		p.unshown.frames++
		p.unshown.bytes += uint64(len(l.data))
		p.unshown.missing += l.fate.Missing
		p.last = l.at
		return
	}
	if l.fate.Missing > 0 {
		p.buf = p.format.missing(p.buf, l)
	}
	if l.fate.Unanswered {
		p.say(l, true, "no answer to the request before")
	}
	if l.fate.AnsweredLate {
		p.say(l, false, "the answer comes late")
	}
	p.time(l)
	p.buf = p.format.frame(p.buf, l)
	for _, text := range p.search.frame(l) {
		p.say(l, false, text)
	}
}

// time sets the gap to what came before.
func (p *printer) time(l *line) {
	l.gap = -1
	if p.last != 0 {
		l.gap = l.at - p.last
	}
	p.last = l.at
}

// begin begins a piece of damage.
func (p *printer) begin(l *line) {
	p.hurt = l
	l.data = bytes.Clone(l.data[:min(len(l.data), shownDamage)])
}

// bytes adds to the damage.
func (p *printer) bytes(l *line) {
	if h := p.hurt; h == nil || h.lead != l.lead || l.at-h.at > int64(p.facts.together) {
		p.settle()
		n := len(l.data)
		p.begin(l)
		p.hurt.bytes = n
		return
	}
	h := p.hurt
	h.part = max(h.part, l.part)
	h.bytes += len(l.data)
	h.data = append(h.data, l.data[:min(len(l.data), shownDamage-len(h.data))]...)
}

// settle writes down what is known of bytes in no frame.
func (p *printer) settle() {
	l := p.hurt
	if p.hurt = nil; l == nil || l.bytes == 0 {
		return
	}
	p.time(l)
	l.what = p.facts.damage(l.marks, l.part, l.lead)
	if !p.late.Load() {
		p.buf = p.format.damage(p.buf, l)
	}
	for _, text := range p.search.skipped(l.bytes) {
		p.say(l, true, text)
	}
}

func (p *printer) say(l *line, bad bool, text string) {
	n := *l
	n.text, n.bad = text, bad
	p.buf = p.format.note(p.buf, &n)
}
