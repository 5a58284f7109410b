package archive

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"path/filepath"

	"github.com/tallywheel/tallywheel/ledger"
)

// A history does not grow without end. Once it is too long, its older lines become one for each log
// that they speak of, with what the verdict needs of them: a new file takes the place of the old
// one, so a kill leaves either. Places in a history count as if nothing had ever been folded, so
// those that were noted before stay right.

// A history of more than maxHistory bytes keeps about the newest keptHistory of them. Tests have
// less.
var (
	maxHistory  int64 = 16 << 20
	keptHistory int64 = 8 << 20
)

// Folded is what is left of older starts on one log.
type Folded struct {
	Starts uint64      `json:"starts"`
	To     int64       `json:"to"`  // where the line behind them begins, in all of the history
	All    ledger.Past `json:"all"` // what they had lost
	News   ledger.Past `json:"news"`
	Acked  ledger.Time `json:"acked"` // News is without what the word of that time speaks of; 0: all of it
}

// foldedHead is how the line of a fold begins.
const foldedHead = `{"end":"` + causeFolded + `"`

// layout says where the lines of a history are that was folded.
type layout struct {
	head  int64 // how long the lines of the fold are
	shift int64 // how much longer the history was than its file is
}

// layoutOf reads the beginning of a history.
func layoutOf(f io.ReaderAt) (at layout, folds []historyLine, err error) {
	b := make([]byte, len(foldedHead))
	if n, err := f.ReadAt(b, 0); n < len(b) || string(b) != foldedHead {
		if err == io.EOF {
			err = nil
		}
		return at, nil, err
	}
	in := bufio.NewReader(io.NewSectionReader(f, 0, maxPast))
	for {
		next, err := in.Peek(len(foldedHead))
		if err != nil && err != io.EOF {
			return at, nil, err
		}
		if string(next) != foldedHead {
			return at, folds, nil
		}
		l := historyLine{at: at.head}
		if err := readLine(in, &l); err != nil && err != io.EOF {
			return at, nil, err
		}
		end := l.at
		if l.read(); l.err != nil || l.sheet.Folded == nil {
			return at, folds, nil // it is told as a line that cannot be read
		}
		l.at, at.head, at.shift = at.head, end, l.sheet.Folded.To-end
		folds = append(folds, l)
	}
}

// foldSum adds up the starts on one log.
type foldSum struct {
	identity  string
	all, news pastSum
	starts    uint64
	since, at ledger.Time
}

// fold shortens the history of f, which is that of dir, if it is too long. identity is that of the
// log of its newest line. One that cannot be folded now is folded with its next line.
func fold(dir string, f *os.File, identity string) error {
	st, err := f.Stat()
	if err != nil || st.Size() <= maxHistory {
		return err
	}
	ack, err := LoadAck(dir)
	if err != nil {
		return err
	}
	cut, size, err := cutOf(f)
	if err != nil || cut == 0 {
		return err
	}
	sums := foldSums{identity: identity, ack: ack, isMarked: ack.isMarkedIn(f)}
	err = eachKeptOf(f, func(l *historyLine, all extent) error {
		if l.at < cut {
			sums.line(l, all)
		}
		return nil
	})
	if err != nil {
		return err
	}
	b, err := sums.lines(cut)
	if err != nil {
		return err
	}
	tail := make([]byte, size-cut)
	if _, err := f.ReadAt(tail, st.Size()-int64(len(tail))); err != nil {
		return err
	}
	return replaceFile(filepath.Join(dir, HistoryFile), "", append(b, tail...), true)
}

// cutOf is where the lines begin that are kept, of a history of that size: behind the last whole
// start that leaves about keptHistory, and the newest whole start; 0: nowhere.
func cutOf(f *os.File) (cut, size int64, err error) {
	behind := int64(0) // the newest whole start so far
	err = eachKeptOf(f, func(l *historyLine, all extent) error {
		if size = all.size; l.err == nil && l.sheet.isWhole() {
			if behind <= all.size-keptHistory {
				cut = behind
			}
			behind = l.at + int64(len(l.text)) + 1
		}
		return nil
	})
	return cut, size, err
}

// foldSums adds up lines by the log that they speak of.
type foldSums struct {
	identity string
	ack      *Ack
	isMarked bool // as in pastSum
	all      []*foldSum
}

func (s *foldSums) of(identity string) *foldSum {
	for _, sum := range s.all {
		if sum.identity == identity {
			return sum
		}
	}
	sum := &foldSum{
		identity: identity,
		all:      pastSum{identity: s.identity},
		news:     pastSum{identity: s.identity, ack: s.ack, isMarked: s.isMarked},
	}
	s.all = append(s.all, sum)
	return sum
}

// line takes in the next line of a history.
func (s *foldSums) line(l *historyLine, of extent) {
	sum := s.of(s.identity)
	if l.err == nil {
		sum = s.of(l.sheet.Identity)
		sum.span(&l.sheet)
	}
	sum.all.line(l, of)
	sum.news.line(l, of)
}

// span notes which starts the sum is of.
func (s *foldSum) span(of *StartSheet) {
	switch {
	case of.Folded != nil:
		s.starts += of.Folded.Starts
	case of.isWhole():
		s.starts++
	}
	if s.since == 0 || of.Sheet.Since != 0 && of.Sheet.Since < s.since {
		s.since = of.Sheet.Since
	}
	s.at = max(s.at, of.Sheet.At)
}

// lines is what stands for the lines up to to.
func (s *foldSums) lines(to int64) (text []byte, err error) {
	for _, sum := range s.all {
		sum.all.noteTorn()
		sum.news.noteTorn()
		f := Folded{Starts: sum.starts, To: to, All: sum.all.past, News: sum.news.past}
		if s.ack != nil {
			f.Acked = s.ack.At
		}
		line, err := json.Marshal(StartSheet{
			End: causeFolded, Part: true, Identity: sum.identity, Folded: &f,
			Sheet: ledger.Sheet{Since: sum.since, At: sum.at, Ports: []ledger.Port{}},
		})
		if err != nil {
			return nil, err
		}
		text = append(append(text, line...), '\n')
	}
	return text, nil
}

// addFolded adds what is left of older starts. A word that does not speak of all of them is the one
// of when they were folded: one that was given since speaks of what was folded before.
func (p *pastSum) addFolded(s *StartSheet) {
	f, of := s.Folded, &s.Folded.All
	wasThere, speaks := p.isMarked && f.To <= p.ack.History, p.ack.SpeaksOf(s.Identity)
	if speaks && f.Acked != 0 && (p.ack.At == f.Acked || p.ack.byTime() && p.ack.At > f.Acked) {
		of = &f.News
	}
	lost := *of
	lost.OtherLog = 0 // it is counted by the log of now
	if speaks && (wasThere || p.ack.byTime() && s.Sheet.At <= p.ack.At) {
		lost = ledger.Past{Unreadable: of.Unreadable}
	}
	if p.ack.SpeaksOf(p.identity) && wasThere {
		lost.Unreadable = false
	}
	before := p.past.Starts
	p.past.Join(&lost)
	if s.OnOtherLog(p.identity) {
		p.past.OtherLog += p.past.Starts - before
	}
}
