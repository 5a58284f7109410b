package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/tallywheel/tallywheel/ledger"
)

// AckFile has the last word of somebody who knows what was lost, see [ledger.Ack].
const AckFile = "ack.json"

// Ack is what [AckFile] keeps.
type Ack struct {
	ledger.Ack
	// Sheet is the sheet of that moment: what it has counted counts no more. nil: no recorder ran.
	Sheet *ledger.Sheet `json:"sheet,omitempty"`
	// History is how long the history was then, in bytes, with what of it is folded: what cannot be
	// read before that is known.
	History int64 `json:"history,omitempty"`
	// Logs is the identities of the logs that it speaks of: the one of then, and those of the
	// starts before. None: a program before this wrote it, and it speaks of all.
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

// Save keeps the word in dir, durably. identity is that of the log; "": as the newest sheet says.
func (a *Ack) Save(dir, identity string) error {
	a.History, a.Logs = 0, nil
	if identity == "" {
		identity = LogOf(dir)
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
	if err != nil { // what cannot be read now is told again by the next start
		a.History = 0
	}
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(dir, AckFile), "", b, true)
}
