package archive

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

const (
	currentFile = "sheet.json"        // the sheet of this start, brought up to date every second in which it changes
	beforeFile  = "sheet.json.before" // the one before it, should that be damaged
)

// CauseLogFailed is the cause under which frames are dropped that were in the log's hands when it
// failed.
const CauseLogFailed = "log_failed"

// Ends of a start that could not write its own.
const (
	CauseKilled  = "killed, or the power was cut: the sheet is of the last second"
	causeOlder   = "its last sheet could not be read: this one is of a second before"
	causeRebuilt = "its sheets could not be read: this one has only what the log's last records say"
	causeFolded  = "older starts, folded into one line"
	causeCut     = "what sheets.ndjson had before this line is gone: it was cut, removed or replaced"
)

// Succession is where a source goes on that has got a device which was another's. With another
// device in the configuration it says nothing.
type Succession struct {
	Device    string            `json:"device"` // as the configuration had it
	Positions []ledger.Position `json:"positions"`
}

// Absence is since when a source is not read, and why. It may last over several starts.
type Absence struct {
	Since ledger.Time `json:"since"`
	Why   string      `json:"why"`
	IsSet bool        `json:"clock_set,omitempty"` // the clock was set since
}

// MissedPeer is a peer that is not there, of a source that is not read: since when, and whether the
// verdict has said so.
type MissedPeer struct {
	Since ledger.Time `json:"since"`
	Known bool        `json:"known"`
}

// StartSheet is the sheet of one start of the recorder.
type StartSheet struct {
	End string `json:"end"` // why it ended, "" while it runs
	// Left is why the recorder has ended in order, of a start that goes on if the next one finds
	// its memory, and else has ended by that.
	Left string `json:"left,omitempty"`
	// Waiting is the bytes that waited then, by source, and are lost if the start does not go on.
	// Of one that has ended in order: of connections that nobody had read, and of what had run over
	// into a file. Of another one: of what was read and was in no frame yet, in memory and in a
	// file.
	Waiting map[string]uint64 `json:"waiting,omitempty"`
	// WaitingFrom is where on the wire the first byte of those stands, as records of the log have
	// it, of a start that may go on; not of a source that has two wires of which bytes wait.
	WaitingFrom map[string]uint64 `json:"waiting_from,omitempty"`

	Sheet     ledger.Sheet `json:"sheet"`
	LogStored uint64       `json:"log_stored"` // last record of the log that Positions know of
	// last record reported durable: a log that ends before has lost some
	LogDurable uint64 `json:"log_durable"`
	// Positions says up to where numbers are stored, or dropped and counted, by source.
	Positions map[string][]ledger.Position `json:"positions"`
	// Seen is the highest numbers that the sheet has counted, of sources of which something was in
	// flight.
	Seen map[string][]ledger.Position `json:"seen,omitempty"`
	// ReadTo is up to when what came of a source was taken, of a start that has stopped: nobody has
	// what came behind that, though the stop went on. Not of sources that were not there then; of
	// the newest sheet, and of the line of a start that has written that itself.
	ReadTo map[string]ledger.Time `json:"read_to,omitempty"`
	// Succeeds is what sources have got from others that had their devices before a reload, as far
	// as nothing has come of it since; of the sheets that have ReadTo.
	Succeeds map[string]Succession `json:"succeeds,omitempty"`
	// Away is the sources that were not read then, and have no account among the ports: one that a
	// reload has taken out, and a peer that has made room; of the sheets that have ReadTo.
	Away map[string]Absence `json:"away,omitempty"`
	// Missed is the peers that were there when their sources were left, which are not read; of the
	// sheets that have ReadTo.
	Missed map[string]MissedPeer `json:"missed,omitempty"`
	// LogFirst is the oldest record kept, of a start that has closed its log, or whose log keeps
	// everything; 0 where retention may have gone on.
	LogFirst uint64 `json:"log_first,omitempty"`
	// LogOldest is the oldest record that was there when the start began, where the log removes one
	// for want of room alone: what is gone before the oldest of now was removed so. 0: not known.
	LogOldest uint64 `json:"log_oldest,omitempty"`
	// LogEvicted is how many records the log had removed for want of room in its life when the
	// start began; null: not known.
	LogEvicted *uint64 `json:"log_evicted,omitempty"`
	// LogEnd is the highest number that the log has given, of a start whose log is closed or has
	// failed: no record behind it can be on disk. 0 where records may have been added since.
	LogEnd uint64 `json:"log_end,omitempty"`
	// LogBegun: the log had a segment, and not only room for one to wait for.
	LogBegun bool `json:"log_begun,omitempty"`
	// Unsynced is frames that the sheet counts as stored, and not as durable, and bytes that it
	// counts as quarantined and that are not durable either, by source.
	Unsynced map[string]Span `json:"unsynced,omitempty"`
	// Identity is that of the log, in hexadecimal; "" where it is not known, as of a program before
	// this.
	Identity string `json:"identity,omitempty"`
	// LogMissing is what the log said to be missing when this start opened it, also what an earlier
	// sheet has named: the log may say it again.
	LogMissing []ledger.MissingRecords `json:"log_missing,omitempty"`
	// Found is what a later start found missing that has no sheet of its own yet.
	Found []ledger.MissingRecords `json:"found,omitempty"`
	// ClockWrong is when the clock was wrong, in this start and earlier ones, as far as that was
	// noticed.
	ClockWrong []WrongClock `json:"clock_wrong,omitempty"`
	// Uncertain: the log failed, and what is dropped as log_failed may be in it after all. The next
	// start looks.
	Uncertain bool `json:"uncertain,omitempty"`
	// Troubles is what was told to have begun, and not to be over; of the newest sheet only.
	Troubles []Trouble `json:"troubles,omitempty"`
	// Unsent is events that are not delivered yet, by who is to be told: webhook or command; of the
	// newest sheet only.
	Unsent map[string][]json.RawMessage `json:"unsent,omitempty"`
	// Streams is the stream numbers that the table of the log had, and Unnamed those that it had
	// once and has no more: records up to UnnamedUpTo may have them.
	Streams     []Run  `json:"streams,omitempty"`
	Unnamed     []Run  `json:"unnamed,omitempty"`
	UnnamedUpTo uint64 `json:"unnamed_up_to,omitempty"`
	// Losses is the newest of what was lost, the oldest entry first, and LossesBefore how many
	// entries there were before them.
	Losses       []Loss `json:"losses,omitempty"`
	LossesBefore uint64 `json:"losses_before,omitempty"`
	// Late is how many frames came late that are in the lists of earlier starts, by source.
	Late map[string]uint64 `json:"late,omitempty"`
	// Part: the sheet is of a source that has left, and its peers; the start went on.
	Part bool `json:"part,omitempty"`
	// Parts is how many parts the start has kept by now, a part itself among them. What those have
	// is in no sheet with that number, or a higher one.
	Parts uint64 `json:"parts,omitempty"`
	// Books is which book of its start each account is of, in the order of the ports, then of those
	// that are leaving; of a peer, that of its source.
	Books []uint64 `json:"books,omitempty"`
	// Own is which book of its start each account is of, in the same order, where a peer is among
	// them.
	Own []uint64 `json:"own_books,omitempty"`
	// Dismissed is books whose memory may still be there, though their counts are elsewhere: of
	// peers that have made room, in the account of their source; of sources that have left, in a
	// part of the history.
	Dismissed []uint64 `json:"dismissed_books,omitempty"`
	// Acked is the word that was given once the start was over and the history did not have it yet:
	// all of it was known.
	Acked *ledger.Ack `json:"acked,omitempty"`
	// Folded: the line stands for all starts before it that were on its log.
	Folded *Folded `json:"folded,omitempty"`
	// History is what the history was when its own start saved this sheet; null: a program before
	// this saved it, or the history could not be read.
	History *HistoryMark `json:"history,omitempty"`

	// closed is the same start as it has ended, and as the history has it: what the log has behind
	// that is of a start since then. nil: it has not ended, as far as it is known.
	closed *StartSheet
	next   ledger.Time // when that start began; 0: it is not known

	takenBack map[string]uint64 // the frames that TakeBack has put back in flight, by source

	isOlder bool // a start may have begun since, whose only sheet cannot be read
}

// Trouble is one that was told when it began.
type Trouble struct {
	Kind   string       `json:"kind"` // as in the table of docs/guide/verdict.md
	Level  ledger.Level `json:"level"`
	What   string       `json:"what"`
	Source string       `json:"source"` // "": all of them, or the log
	Count  uint64       `json:"count"`  // in Unit, since it began; 0: it is a state
	Unit   string       `json:"unit"`
	Since  ledger.Time  `json:"since"`
	Last   ledger.Time  `json:"last"` // when it had grown last; 0 of a state
}

// WrongClock is a time, by a clock that was then set, and by how much: records of that time are
// younger than they seem.
type WrongClock struct {
	From ledger.Time `json:"from"`
	To   ledger.Time `json:"to"`
	By   int64       `json:"by"` // ns that the clock was behind; negative: it was ahead
	// Unkept: nobody kept the clock then, and by how much it was wrong is not known.
	Unkept bool `json:"unkept,omitempty"`
}

// Untold is what of a log's losses neither this sheet nor an earlier one has named.
func (s *StartSheet) Untold(missing []ledger.MissingRecords) (news []ledger.MissingRecords) {
	if s == nil {
		return missing
	}
	told := slices.Concat(s.LogMissing, s.Found)
	if s.Sheet.Recovered != nil {
		told = append(told, s.Sheet.Recovered.Missing...)
	}
	for _, m := range missing {
		news = append(news, without(m, told)...)
	}
	return news
}

// without is what of m is in none of told: a repair may give up more than the gap that was named.
func without(m ledger.MissingRecords, told []ledger.MissingRecords) []ledger.MissingRecords {
	left := []ledger.MissingRecords{m}
	for _, t := range told {
		var rest []ledger.MissingRecords
		for _, m := range left {
			before, behind := m, m
			before.To, behind.From = min(m.To, t.From-1), max(m.From, t.To+1)
			switch {
			case t.From > t.To || t.To < m.From || m.To < t.From:
				rest = append(rest, m)
				continue
			case m.From < t.From:
				rest = append(rest, before)
			}
			if t.To < m.To {
				rest = append(rest, behind)
			}
		}
		left = rest
	}
	return left
}

// Log is the identity of the log that the sheet is of; zero: not known.
func (s *StartSheet) Log() (id [16]byte) {
	if s != nil && len(s.Identity) == 2*len(id) {
		if _, err := hex.Decode(id[:], []byte(s.Identity)); err != nil {
			return [16]byte{}
		}
	}
	return id
}

// rebuildRecords is how many records at the end of the log a start without a sheet reads, so that
// it begins within seconds.
const rebuildRecords = 4 << 20

// ErrNoSheet: no start has left a sheet, not even one that cannot be read.
var ErrNoSheet = errors.New("there is no sheet")

// LoadStart reads what the last start left in dir; nil if there is nothing that can be read, and
// why. The sheet before the last serves where that is damaged: log is told.
func LoadStart(dir string, log *slog.Logger) (*StartSheet, error) {
	s, err := readStart(filepath.Join(dir, currentFile))
	if err == nil {
		return s, nil
	}
	before, beforeErr := readStart(filepath.Join(dir, beforeFile))
	if errors.Is(err, fs.ErrNotExist) && errors.Is(beforeErr, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w in %s", ErrNoSheet, dir)
	}
	if beforeErr != nil {
		return nil, errors.Join(err, beforeErr)
	}
	log.Warn("the last sheet cannot be read; the one before it, and the log, serve instead", "error", err)
	if before.End == "" {
		before.End, before.Uncertain = causeOlder, true
	} else { // it is of a start that has kept it
		before.isOlder = true
	}
	before.LogFirst, before.LogEnd = 0, 0 // there was a start since
	return before, nil
}

// HasNoEnd reports whether the start may go on: no end of it is known. That its last sheet could
// not be read, as behind a kill between two renames, is none.
func (s *StartSheet) HasNoEnd() bool { return s.End == "" || s.End == causeOlder }

// CauseStopped is the cause under which bytes are unread that waited when their source stopped.
const CauseStopped = "stopped"

// Settle has a start be over that might have gone on.
func (s *StartSheet) Settle() {
	if s == nil || s.Left == "" {
		return
	}
	s.End, s.Left = s.Left, ""
	waiting := maps.Clone(s.Waiting)
	for _, ports := range [][]ledger.Port{s.Sheet.Ports, s.Sheet.Leaving} {
		for i := range ports {
			p := &ports[i]
			p.Spilled = 0
			p.Bytes.Resync, p.Bytes.Partial = p.Bytes.Resync+p.Bytes.Partial, 0 // of a frame that was cut
			if n := waiting[p.ID]; n > 0 {
				delete(waiting, p.ID) // of two accounts of one name, the other leaves
				p.Unread = maps.Clone(p.Unread)
				if p.Unread == nil {
					p.Unread = map[string]uint64{}
				}
				p.Unread[CauseStopped] += n
			}
		}
	}
	if s.Sheet.Verdict != nil {
		v := s.Sheet.Judge()
		s.Sheet.Verdict = &v
	}
	s.Waiting = nil
}

// SetTornAside gives the last sheet in dir another name, which it returns, where it cannot be read
// and the one before it can: the next one that is written would have it take that one's place. Only
// who has the log may call it.
func SetTornAside(dir string) (aside string, err error) {
	path := filepath.Join(dir, currentFile)
	if st, err := os.Lstat(path); err != nil || !st.Mode().IsRegular() {
		return "", nil // what is no file takes nobody's place
	}
	if _, err := readStart(path); err == nil {
		return "", nil
	}
	if _, err := readStart(filepath.Join(dir, beforeFile)); err != nil {
		return "", nil
	}
	return setAside(path)
}

// Rebuilt stands for the sheet of a start that left none: it has only what the log's records, from
// first to last, say.
func Rebuilt(first, last uint64) *StartSheet {
	s := &StartSheet{
		End: causeRebuilt, Uncertain: true, LogStored: max(first, 1) - 1,
		Sheet: ledger.NewSheet(0, 0, nil),
	}
	if last > rebuildRecords {
		s.LogStored = max(s.LogStored, last-rebuildRecords)
	}
	return s
}

// HasNone reports whether the sheet stands for a start that has left none.
func (s *StartSheet) HasNone() bool { return s.End == causeRebuilt }

// KnowsNoEnd reports whether the sheet was made of a log whose last records are gone: the numbers
// in them are not known, so nothing behind them can be called missing a second time.
func (s *StartSheet) KnowsNoEnd(stored uint64) bool {
	return s.End == causeRebuilt &&
		slices.ContainsFunc(s.Found, func(m ledger.MissingRecords) bool { return m.To >= stored })
}

// Expect is what the sheet says that the log holds.
func (s *StartSheet) Expect() seglog.Extent {
	if s == nil || max(s.LogDurable, s.LogStored, s.LogEnd) >= 1<<63 { // no log is that long
		return seglog.Extent{}
	}
	return seglog.Extent{
		First: s.LogFirst, Last: s.LogDurable, End: s.LogEnd, Given: s.LogStored,
		Begun: s.LogBegun && s.LogEnd == 0 && s.HasNoEnd(),
	}
}

func readStart(path string) (*StartSheet, error) {
	b, err := readSide(path)
	if err != nil {
		return nil, err
	}
	var s StartSheet
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	s.tellBooks()
	return &s, nil
}

// Save brings the sheet of this start up to date on disk. It is synced before it has its name:
// after a power cut, some file systems give the name of a file that was not synced to an empty one.
// On a full disk it takes the room of the one before.
func (s *StartSheet) Save(dir string, durable bool) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(dir, currentFile), filepath.Join(dir, beforeFile), padded(b), durable)
}

// Known is what the newest sheet in dir that can be read says of the log beside it: from where and
// up to where it was durable, and up to where it was stored. It knows nothing where there is none.
// The first record is known as long as no start has gone on with the log.
func Known(dir string) seglog.Extent {
	s, err := LoadStart(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return seglog.Extent{}
	}
	return s.Expect()
}

// OnOtherLog reports whether the sheet is of a start on another log than the one of that identity;
// false where one of the two is not known.
func (s *StartSheet) OnOtherLog(identity string) bool {
	return s.Identity != "" && identity != "" && s.Identity != identity
}

// LogOf is the identity, in hexadecimal, of the log that the newest sheet in dir is of; "": it is
// not known.
func LogOf(dir string) string {
	s, err := readStart(filepath.Join(dir, currentFile))
	if err != nil {
		return ""
	}
	return s.Identity
}
