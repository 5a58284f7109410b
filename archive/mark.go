package archive

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/tallywheel/tallywheel/seglog"
)

// Mark names a record, so that whoever has all records up to it can go on behind it, whatever has
// happened since. Its number alone would not do: another log has the same numbers, and one that a
// power cut took records from which were not synced gives their numbers again.
type Mark struct {
	Log  [16]byte // identity of the log; zero: any
	Seq  uint64   // 0: before the first record
	Time int64    // of the record, ns since 1970; 0: not known
}

var (
	none          [16]byte
	errNoIdentity = errors.New("an identity of zeros")
)

// String is the mark as a text without spaces: identity, number, and time in hexadecimal.
func (m Mark) String() string {
	text := strconv.FormatUint(m.Seq, 10)
	if m.Log != none {
		text = hex.EncodeToString(m.Log[:]) + "-" + text
	}
	if m.Time != 0 {
		text += "-" + strconv.FormatUint(uint64(m.Time), 16)
	}
	return text
}

// ParseMark reads what String wrote, or the number of a record alone.
func ParseMark(text string) (m Mark, err error) {
	parts := strings.Split(text, "-")
	number := parts[0]
	if len(parts) > 1 {
		var id []byte
		id, err = hex.DecodeString(parts[0])
		if len(id) != len(m.Log) {
			err = cmp.Or(err, hex.ErrLength)
		}
		copy(m.Log[:], id)
		if m.Log == none { // no log has that: String leaves it out
			err = cmp.Or(err, errNoIdentity)
		}
		number = parts[1]
	}
	var timeErr error
	m.Seq, timeErr = strconv.ParseUint(number, 10, 63)
	err = cmp.Or(err, timeErr)
	if len(parts) > 2 {
		at, timeErr := strconv.ParseUint(parts[2], 16, 64)
		m.Time, err = int64(at), cmp.Or(err, timeErr)
	}
	if err != nil || len(parts) > 3 {
		return Mark{}, fmt.Errorf("%q: want a mark as it was given, or the number of a record", text)
	}
	return m, nil
}

// Reasons why a mark does not hold.
const (
	OtherLog  = "other_log"  // it is of another log
	BeyondEnd = "beyond_end" // the log has no such record yet: it was lost before it was synced, or never there
	Replaced  = "replaced"   // its record was lost before it was synced, and another one has the number
	Removed   = "removed"    // what follows it is not in the log any more
)

// MarkError says that a mark does not hold, and where to go on.
type MarkError struct {
	Reason string
	From   uint64 // the first record of which nobody with this mark can be sure to have it
	Gone   uint64 // with Removed: how many records before that are gone
}

// Error implements error.
func (e *MarkError) Error() string {
	return map[string]string{
		OtherLog:  "this is the mark of another log",
		BeyondEnd: "the log ends before this record",
		Replaced:  "the log has another record of this number: the one asked for was lost before it was synced",
		Removed:   fmt.Sprintf("%d records behind this one are not in the log any more", e.Gone),
	}[e.Reason] + fmt.Sprintf("; go on from record %d", e.From)
}

// Resume is the record from which to go on behind a mark, of a log that is open for writing. A
// [*MarkError] says that the mark does not hold.
func (a *Archive) Resume(m Mark) (from uint64, err error) {
	at := a.log.Position()
	begun := a.log.Recovered().Last // what this start has added cannot be in a mark that an earlier one gave
	switch {
	case m.Log != none && m.Log != a.log.Identity():
		return 0, &MarkError{Reason: OtherLog, From: at.First}
	case m.Seq > at.Stored:
		return 0, &MarkError{Reason: BeyondEnd, From: max(at.First, min(begun, at.Stored)+1)}
	case m.Seq+1 < at.First:
		return 0, &MarkError{Reason: Removed, From: at.First, Gone: at.First - m.Seq - 1}
	}
	if m.Time != 0 {
		rec, err := a.record(m.Seq)
		if err != nil {
			return 0, err
		}
		if rec.Seq >= m.Seq && (rec.Seq > m.Seq || rec.Time != m.Time) {
			return 0, &MarkError{Reason: Replaced, From: max(at.First, min(m.Seq, begun+1))}
		}
	}
	return m.Seq + 1, nil
}

// ResumeBack is the record before which to go on towards the oldest, of a log that is open for
// writing. A [*MarkError] says that the mark does not hold; its From is then the record to go on
// with.
func (a *Archive) ResumeBack(m Mark) (before uint64, err error) {
	at := a.log.Position()
	switch {
	case m.Log != none && m.Log != a.log.Identity():
		return 0, &MarkError{Reason: OtherLog, From: at.Stored}
	case m.Seq > at.Stored+1:
		return 0, &MarkError{Reason: BeyondEnd, From: at.Stored}
	}
	if m.Time != 0 && m.Seq >= at.First {
		rec, err := a.record(m.Seq)
		if err != nil {
			return 0, err
		}
		if rec.Seq >= m.Seq && (rec.Seq > m.Seq || rec.Time != m.Time) {
			return 0, &MarkError{Reason: Replaced, From: m.Seq}
		}
	}
	return m.Seq, nil
}

// Mark is that of a record, of a log that is open for writing; without a time where the record is
// not in the log any more, or cannot be read.
func (a *Archive) Mark(seq uint64) (Mark, error) {
	m := Mark{Log: a.log.Identity(), Seq: seq}
	rec, err := a.record(seq)
	if rec.Seq == seq {
		m.Time = rec.Time
	}
	return m, err
}

// record reads the record of that number, or the first one behind it where it is a note; the zero
// value if it is not in the log, or cannot be read: then nothing speaks against a mark.
func (a *Archive) record(seq uint64) (seglog.Record, error) {
	if seq == 0 {
		return seglog.Record{}, nil
	}
	r := a.read(seq)
	rec, err := r.Next()
	rec.Data = nil // a view of what is closed now
	var gap *seglog.GapError
	var corrupt *seglog.CorruptError
	if err == io.EOF || errors.As(err, &gap) || errors.As(err, &corrupt) {
		err = nil
	}
	return rec, errors.Join(err, r.Close())
}
