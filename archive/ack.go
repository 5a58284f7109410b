package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// AckFile has the last word of somebody who knows what was lost, see [ledger.Ack].
const AckFile = "ack.json"

// Ack is what [AckFile] keeps.
type Ack struct {
	ledger.Ack
	// Sheet is the sheet of that moment: what it has counted counts no more. nil: no recorder ran.
	Sheet *ledger.Sheet `json:"sheet,omitempty"`
	// Books is what the books of that moment had noted, by [ledger.Port.Book], where a recorder may
	// be killed and another goes on with them.
	Books map[uint64]ledger.Noted `json:"books,omitempty"`
	// History is how long the history was then, in bytes, with what of it is folded: the lines
	// before that are known, whatever clock they were written by.
	History int64 `json:"history,omitempty"`
	// Mark is how the history ended then, with its last whole line: one that does not begin so is
	// another, and History says nothing of it. nil: a program before this wrote the word.
	Mark *HistoryMark `json:"mark,omitempty"`
	// Next is the number that the next record of the log had then; 0: it is not known.
	Next uint64 `json:"next_record,omitempty"`
	// Logs is the identities of the logs that it speaks of: the one of then, and those of the
	// starts before. The first is that of Next. None: a program before this wrote it, and it speaks
	// of all.
	Logs []string `json:"logs,omitempty"`
}

// SpeaksOf reports whether the word is about starts on the log of that identity; "": it is not
// known which log that is. The word of another folder acknowledges nothing here.
func (a *Ack) SpeaksOf(identity string) bool {
	return a != nil && (identity == "" || len(a.Logs) == 0 || slices.Contains(a.Logs, identity))
}

// LoadAck reads the last word in dir; nil if there was none.
func LoadAck(dir string) (*Ack, error) {
	b, err := readSide(filepath.Join(dir, AckFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var a Ack
	if err := json.Unmarshal(b, &a); err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(dir, AckFile), err)
	}
	if a.Sheet != nil {
		a.Sheet = a.Sheet.Copy()
	}
	return &a, nil
}

// LateAck is a word of which the sheet of a start does not know: it was given behind that sheet.
type LateAck struct {
	ledger.Ack
	Next uint64 // the first record of the log that it does not speak of
	isIn bool   // it was given while the start ran
}

// Behind is the word, unless s, which a start on the log of that identity has left, knows of it, or
// was left behind it. Clocks have no say in that.
func (a *Ack) Behind(s *StartSheet, identity string) *LateAck {
	if a == nil || !a.SpeaksOf(identity) || s.Sheet.Ack != nil && *s.Sheet.Ack == a.Ack {
		return nil
	}
	if a.Mark != nil && s.History != nil && s.History.Bytes > a.History {
		return nil
	}
	w := &LateAck{Ack: a.Ack, Next: a.Next, isIn: a.Sheet != nil && a.Sheet.Since == s.Sheet.Since}
	switch {
	case a.Next != 0 && len(a.Logs) > 0 && a.Logs[0] == identity:
	case a.Sheet == nil: // no recorder ran: the log had no more
		w.Next = math.MaxUint64
	default:
		w.Next = s.LogStored + 1
	}
	return w
}

// Save keeps the word in dir, durably. identity is that of the log; "": as the newest sheet says,
// and nobody records there.
func (a *Ack) Save(dir, identity string) error {
	a.History, a.Mark, a.Logs = 0, &HistoryMark{}, nil
	if identity == "" {
		identity = LogOf(dir)
		a.Next = nextRecord(dir)
	}
	note := func(identity string) {
		if identity != "" && !slices.Contains(a.Logs, identity) {
			a.Logs = append(a.Logs, identity)
		}
	}
	note(identity)
	err := eachKept(dir, func(l *historyLine, of extent) error {
		a.History = of.size
		note(l.sheet.Identity)
		return nil
	})
	if err == nil {
		a.Mark, err = markLines(dir)
	}
	if err != nil { // what cannot be read now is told again by the next start
		a.History, a.Mark = 0, &HistoryMark{}
	}
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(dir, AckFile), "", b, true)
}

// nextRecord is the number behind the last record of the log in dir; 0: it cannot be read.
func nextRecord(dir string) uint64 {
	folder, err := seglog.Dir(dir)
	if err != nil {
		return 0
	}
	r := seglog.NewReverse(folder, 0)
	defer r.Close()
	rec, err := r.Next()
	if err != nil {
		return 0
	}
	return rec.Seq + 1
}

// isMarked reports whether the history in dir begins as it was when the word was given: then the
// word speaks of the lines before [Ack.History]. Of a word of a program before this that is not
// known; a history that is shorter now is another.
func (a *Ack) isMarked(dir string) bool {
	if a == nil {
		return false
	}
	h, err := OpenHistory(dir)
	if err != nil {
		return false
	}
	defer h.Close()
	return a.isMarkedIn(h)
}

func (a *Ack) isMarkedIn(h *os.File) bool {
	if a == nil {
		return false
	}
	mark := a.Mark
	if mark == nil {
		st, err := h.Stat()
		if err != nil {
			return false
		}
		at, _, err := layoutOf(h)
		return err == nil && a.History <= st.Size()+at.shift
	}
	is, err := mark.begins(h)
	return is && err == nil
}

// byTime reports whether nothing but the clock says what was before the word: a program before this
// wrote it, which did not say how long the history was, or for starts that were not in it yet.
func (a *Ack) byTime() bool { return a.Mark == nil && (a.History == 0 || a.Sheet == nil) }
