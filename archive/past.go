package archive

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/tallywheel/tallywheel/ledger"
)

// maxPast is how much of the history counts, from its end, in bytes: a start must not wait for
// years of it. Tests have less.
var maxPast int64 = 32 << 20

// PastOf is what the starts kept in dir, and those that may not be there yet, have lost since a;
// nil: since the first of them, as far as the last 32 MiB of the history say. identity is that of
// the log: starts on others count, too, and are told apart.
//
// With a line that cannot be read, which is the error, and with a start whose sheets could not be,
// the past is Unreadable. A last line that was torn while it was written is neither, if its start
// is among the owed.
func PastOf(dir, identity string, a *Ack, owed []*StartSheet) (*ledger.Past, error) {
	p := pastSum{identity: identity, ack: a, isMarked: a.isMarked(dir)}
	err := eachKept(dir, func(l *historyLine, of extent) error {
		p.line(l, of)
		return nil
	})
	p.past.Unreadable = p.past.Unreadable || err != nil
	if p.torn != nil && slices.ContainsFunc(owed, p.torn.isRestOf) {
		p.torn = nil
	}
	p.noteTorn()
	for _, s := range owed {
		p.past.Unreadable = p.past.Unreadable || s.tellsOfGaps()
		if !s.sameStart(p.newest) { // else whoever kept it was killed before it could say so
			p.add(*s, false)
		}
	}
	if p.past.IsEmpty() {
		return nil, errors.Join(err, p.err)
	}
	return &p.past, errors.Join(err, p.err)
}

// pastSum adds up the past.
type pastSum struct {
	identity string
	ack      *Ack
	isMarked bool // the history is the one that the word speaks of
	past     ledger.Past
	newest   *StartSheet  // of a whole start, in the history
	torn     *historyLine // the last line, if it cannot be read
	err      error        // the first line that cannot be read
}

// line takes in the next line of a history.
func (p *pastSum) line(l *historyLine, of extent) {
	p.noteTorn()
	p.past.Partial = p.past.Partial || of.isPartial
	wasThere := p.isMarked && l.at < p.ack.History // when the word was given
	isKnown := p.ack.SpeaksOf(p.identity) && wasThere
	switch {
	case l.err == nil && l.sheet.Folded != nil:
		p.addFolded(&l.sheet)
	case l.err != nil && !isKnown:
		torn := *l
		torn.text = bytes.Clone(l.text)
		p.torn = &torn
	case l.err == nil:
		if s := l.sheet; s.isWhole() {
			p.newest = &s
		}
		p.past.Unreadable = p.past.Unreadable || l.sheet.tellsOfGaps() && !isKnown
		p.add(l.sheet, wasThere)
	}
}

// noteTorn counts the line that cannot be read.
func (p *pastSum) noteTorn() {
	if p.torn != nil {
		p.past.Unreadable, p.err = true, cmp.Or(p.err, p.torn.err)
	}
	p.torn = nil
}

// add adds what a start has lost, unless that was acknowledged. wasThere: the history had the line
// when the word was given.
func (p *pastSum) add(s StartSheet, wasThere bool) {
	word := s.Sheet.Ack
	s.Sheet.Ack = nil
	if p.ack.SpeaksOf(s.Identity) {
		base := p.ack.Sheet
		isBase := base != nil && base.Since == s.Sheet.Since // the start in which it was given
		switch {
		case wasThere || s.Acked != nil && *s.Acked == p.ack.Ack:
			return
		case p.ack.byTime() && s.Sheet.At <= p.ack.At && (s.Part || !isBase):
			return
		case isBase:
			s.Sheet.Ack = word
			s.Sheet.Acknowledge(p.ack.Ack, base)
		}
	}
	s.Sheet.Past = nil
	before := p.past.Starts
	p.past.Add(&s.Sheet)
	if s.OnOtherLog(p.identity) {
		p.past.OtherLog += p.past.Starts - before
	}
}

// extent is how long a history is, with what of it is folded, and whether not all is read.
type extent struct {
	size      int64
	isPartial bool
}

// eachKept reads the end of the history in dir, and what is folded of it. A line that stands there
// again is passed over.
func eachKept(dir string, f func(l *historyLine, of extent) error) error {
	h, err := OpenHistory(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.Close()
	return eachKeptOf(h, f)
}

func eachKeptOf(h *os.File, f func(l *historyLine, of extent) error) error {
	st, err := h.Stat()
	if err != nil {
		return err
	}
	at, folds, err := layoutOf(h)
	if err != nil {
		return err
	}
	of := extent{size: st.Size() + at.shift}
	from := at.head
	if from+maxPast < st.Size() {
		from, of.isPartial = st.Size()-maxPast, true
	}
	for i := range folds {
		folds[i].at += at.shift
		if err := f(&folds[i], of); err != nil {
			return err
		}
	}
	end := io.NewSectionReader(h, from, st.Size()-from)
	if from > at.head { // what is left of a line cannot be read, and is no error
		if err := skipLine(end); err != nil {
			return err
		}
	}
	begin, err := end.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	told := toldLines{}
	return eachLine(end, func(l *historyLine) error {
		if l.at += from + begin + at.shift; l.err == nil && told.again(&l.sheet) {
			return nil
		}
		return f(l, of)
	})
}

// skipLine goes to behind the first line feed.
func skipLine(r io.ReadSeeker) error {
	b := make([]byte, 64<<10)
	for at := int64(0); ; {
		n, err := r.Read(b)
		if i := bytes.IndexByte(b[:n], '\n'); i >= 0 {
			_, err := r.Seek(at+int64(i)+1, io.SeekStart)
			return err
		}
		if at += int64(n); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}
