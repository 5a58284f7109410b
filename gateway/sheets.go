package gateway

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

const (
	currentFile = "sheet.json" // the sheet of this start, brought up to date every second

	// HistoryFile has the sheets of earlier starts, a line each.
	HistoryFile = "sheets.ndjson"
)

// causeKilled is the end of a start that wrote none.
const causeKilled = "killed, or the power was cut: the sheet is of the last second"

// StartSheet is the sheet of one start of the recorder.
type StartSheet struct {
	End       string                       `json:"end"` // why it ended, "" while it runs
	Sheet     ledger.Sheet                 `json:"sheet"`
	LogStored uint64                       `json:"log_stored"` // last record of the log that Positions know of
	Positions map[string][]ledger.Position `json:"positions"`  // highest stored numbers, by source
}

// loadStart reads what the last start left; nil if there was none.
func loadStart(dir string) (*StartSheet, error) {
	b, err := os.ReadFile(filepath.Join(dir, currentFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var s StartSheet
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w; move the file away to start without it", filepath.Join(dir, currentFile), err)
	}
	return &s, nil
}

// save brings the sheet of this start up to date.
func (s *StartSheet) save(dir string, durable bool) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(dir, currentFile), b, durable)
}

// archive adds the sheet of a start that has ended to the history.
func (s *StartSheet) archive(dir string) error {
	line, err := json.Marshal(s)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, HistoryFile), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// maxSheetLine bounds a line of the history, in bytes: a sheet of a thousand ports has less.
const maxSheetLine = 16 << 20

// EachStart reads a history.
func EachStart(r io.Reader, f func(StartSheet) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxSheetLine)
	for lines.Scan() {
		var s StartSheet
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return fmt.Errorf("%s: %w", HistoryFile, err)
		}
		if err := f(s); err != nil {
			return err
		}
	}
	return lines.Err()
}

// replay brings the positions of an earlier start up to the end of the log: what it stored after its last sheet. It returns
// the time of the last record.
func (s *StartSheet) replay(log *seglog.Log, streams *Streams) (last int64, err error) {
	r := log.NewReader(s.LogStored + 1)
	defer r.Close()
	for {
		rec, err := r.Next()
		var gap *seglog.GapError
		if errors.As(err, &gap) {
			continue
		}
		if err != nil { // io.EOF: the end
			return last, nil
		}
		last = rec.Time
		e, ok := streams.By(rec.Stream)
		if f := describe(e, rec.Data); ok && f.Sequenced {
			s.reach(e.Source, ledger.Position{Device: f.Device, Epoch: f.Epoch, Last: f.Seq})
		}
	}
}

func (s *StartSheet) reach(source string, p ledger.Position) {
	if s.Positions == nil {
		s.Positions = map[string][]ledger.Position{}
	}
	for i, have := range s.Positions[source] {
		if have.Device == p.Device && have.Epoch == p.Epoch {
			s.Positions[source][i].Last = max(have.Last, p.Last)
			return
		}
	}
	s.Positions[source] = append(s.Positions[source], p)
}

// resumeLimit is the age of positions that a start still goes on from: an older gap is no loss but a pause.
const resumeLimit = 30 * 24 * time.Hour
