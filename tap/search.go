package tap

import (
	"fmt"
	"time"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/detect"
	"github.com/tallywheel/tallywheel/recorder"
)

const (
	// lookedAt bounds the bytes that are looked at, each second: some 2 % of a CPU.
	lookedAt = 64 << 10
	// firstWord is when it is said first that nothing fits, in bytes; then after each eightfold.
	firstWord = 256
	// lookBack is over how many bytes a framing must hold what it promised.
	lookBack = 8 << 10
	// longSilence is the patience of framings that have any: longer gaps end all.
	longSilence = time.Second
)

// rawFrame is the framing under which bytes are shown and recorded while none is found.
const rawFrame = "raw"

// search looks for the framing of a line whose bytes come as raw chunks, and watches the one that
// was found. It is the printer's; a nil one does nothing.
type search struct {
	found          chan<- detect.Fit // has the one that fits; raw: none does any more
	baud, charBits int
	gap            time.Duration // that ends a raw chunk

	d              *detect.Detector // nil: one has been found
	word           int              // when to say that nothing fits
	rate           bool             // it has been said that the rate may be wrong
	second         int64
	looked         int
	last           int64 // when bytes came last
	framed, strays int   // bytes since the framing was found, the older ones less
	asked          bool  // found has one, and the turn has not come yet
}

func newSearch(found chan<- detect.Fit, baud, charBits int, gap time.Duration) *search {
	s := &search{found: found, baud: baud, charBits: charBits, gap: gap}
	s.begin()
	return s
}

func (s *search) begin() { s.d, s.word = detect.New(s.baud, s.charBits), firstWord }

// frame is told of each frame. What it returns is to be said.
func (s *search) frame(l *line) (say []string) {
	switch {
	case s == nil || s.asked:
		return nil
	case s.d == nil:
		return s.weigh(len(l.data), 0)
	}
	if gap := l.at - s.last; s.last != 0 && gap > int64(longSilence) {
		s.d.Silence(time.Duration(gap))
	}
	s.last = l.at
	if now := l.at / int64(time.Second); now != s.second {
		s.second, s.looked = now, 0
	}
	if s.looked += len(l.data); s.looked > lookedAt {
		s.d.Break(frame.Closed)
		return nil
	}
	s.d.Bytes(l.data)
	switch l.part {
	case recorder.AtSilence:
		s.d.Silence(s.gap)
	case recorder.AtMessage:
		s.d.Break(frame.Message)
	case recorder.AtGone, recorder.AtStop:
		s.d.Break(frame.Closed)
	}
	return s.decide()
}

func (s *search) decide() (say []string) {
	if fit, ok := s.d.Decide(); ok {
		s.asked = true
		s.found <- fit // it has room: asked is false until the turn has come
		return nil
	}
	if s.d.WrongRate() && !s.rate {
		s.rate = true
		say = append(say, "these bytes look like a wrong rate"+rateNow(s.baud)+
			"; try -b 9600, 19200, 38400, 57600 or 115200")
	}
	if s.d.Seen() >= s.word {
		for s.word <= s.d.Seen() {
			s.word *= 8
		}
		say = append(say, "undecided so far: "+s.why())
	}
	return say
}

func rateNow(baud int) string {
	if baud == 0 {
		return ""
	}
	return fmt.Sprintf(" (it is %d)", baud)
}

// why says why there is no decision.
func (s *search) why() string {
	if fit, ok := s.d.Leader(); ok {
		why := fit.String()
		if fit.Checked && fit.Kinds < 2 {
			why += ", all alike"
		}
		return why + ": not enough to be sure"
	}
	return fmt.Sprintf("no framing fits %d bytes", s.d.Seen())
}

// skipped is told of bytes in no frame.
func (s *search) skipped(n int) []string {
	if s == nil || s.asked || s.d != nil {
		return nil
	}
	return s.weigh(0, n)
}

// weigh asks for another framing when the one found does not fit any more.
func (s *search) weigh(framed, strays int) []string {
	s.framed += framed
	s.strays += strays
	if s.framed+s.strays < lookBack {
		return nil
	}
	if s.strays > s.framed {
		s.asked = true
		s.found <- detect.Fit{Framing: rawConfig}
		return []string{fmt.Sprintf("the framing does not fit any more: %d of the last %d bytes are in no frame; looking again",
			s.strays, s.framed+s.strays)}
	}
	s.framed, s.strays = s.framed/2, s.strays/2
	return nil
}

// lost is told that bytes are missing here.
func (s *search) lost() {
	if s != nil && s.d != nil {
		s.d.Break(frame.Closed)
	}
}

// turned is told that what follows is framed so.
func (s *search) turned(name string) {
	if s == nil {
		return
	}
	s.asked, s.framed, s.strays, s.last = false, 0, 0, 0
	if s.d = nil; name == rawFrame {
		s.begin()
	}
}
