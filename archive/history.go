package archive

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tallywheel/tallywheel/ledger"
)

// HistoryFile has the sheets of earlier starts, a line each.
const HistoryFile = "sheets.ndjson"

// maxSheetLine bounds a line of the history, in bytes: a sheet of a thousand ports has less. Tests
// have less, too.
var maxSheetLine = 16 << 20

// Keep adds the sheet of a start that has ended, or a part of one, to the history, unless it is
// there already: a process may have been killed just then. What a power cut has left of that very
// line is replaced; any other line that is torn stays, and is ended first.
func (s *StartSheet) Keep(dir string) error { return KeepAll(dir, []*StartSheet{s}) }

// KeepAll is Keep for several, by one write. After an error some of them may be there: the same
// ones are to be kept again.
func KeepAll(dir string, sheets []*StartSheet) error {
	f, err := openSide(filepath.Join(dir, HistoryFile), os.O_RDWR|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return err
	}
	end, err := readEnd(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	var lines []byte
	isRest := false
	for _, s := range sheets {
		if end.has(s) {
			continue
		}
		line, err := json.Marshal(s)
		if err != nil {
			return errors.Join(err, f.Close())
		}
		lines = append(append(lines, line...), '\n')
		isRest = isRest || end.last.isRestOf(s)
	}
	if len(lines) > 0 && isRest {
		err = f.Truncate(end.last.at)
	} else if len(lines) > 0 && !end.last.ended {
		lines = append([]byte{'\n'}, lines...)
	}
	if err == nil {
		_, err = f.Write(lines)
	}
	if err == nil { // also of what is there: whoever wrote it may have ended before its sync
		err = f.Sync()
	}
	if err == nil && len(lines) > 0 {
		_ = fold(dir, f, sheets[0].Identity) // else with the next line
	}
	return errors.Join(err, f.Close())
}

// Ended is s, or the last sheet that the history in dir has of its start or of one since then,
// which was killed, or had an error, before it could write it in the place of s.
func (s *StartSheet) Ended(dir string) *StartSheet {
	if s == nil {
		return nil
	}
	hasEnded := s.End != "" && !s.Uncertain
	if hasEnded {
		s.closed = s
	}
	f, err := OpenHistory(dir)
	if err != nil { // it is told otherwise
		return s
	}
	defer f.Close()
	end, err := readEnd(f)
	if err != nil || end.newest == nil {
		return s
	}
	last := *end.newest
	last.History, last.Troubles, last.Unsent = s.History, s.Troubles, s.Unsent
	if s.Streams != nil {
		last.Streams, last.Unnamed, last.UnnamedUpTo = s.Streams, s.Unnamed, s.UnnamedUpTo
	}
	last.closed = &last
	last.tellBooks()
	switch {
	case !s.sameStart(end.newest):
		if last.Identity != s.Identity || !hasLine(f, s) {
			return s
		}
		last.LogFirst, last.LogEnd = 0, 0 // there may have been a start since, which removed the oldest records
		s = &last
	case s.End == "" && last.End != CauseKilled && last.End != causeOlder:
		s = &last
	case !hasEnded:
		s.closed, s.isOlder = &last, true // by a start that was to go on from s
	}
	if n := len(end.parts); n > 0 {
		s.next = end.parts[n-1].Sheet.Since
	}
	return s
}

// LogOfHistory is the identity, in hexadecimal, of the log that the newest whole start in the
// history is of; "": it is not known.
func LogOfHistory(dir string) string {
	f, err := OpenHistory(dir)
	if err != nil {
		return ""
	}
	defer f.Close()
	end, err := readEnd(f)
	if err != nil || end.newest == nil {
		return ""
	}
	return end.newest.Identity
}

// hasLine reports whether a history has the line of a whole start.
func hasLine(f io.ReadSeeker, s *StartSheet) (has bool) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return false
	}
	_ = EachStart(f, func(o StartSheet) error { // what cannot be read is told otherwise
		has = has || s.sameStart(&o)
		return nil
	})
	return has
}

// HistoryMark says how long a history was, with what of it is folded, and how it ended: one that
// was longer since begins so.
type HistoryMark struct {
	Bytes int64  `json:"bytes"`
	Sum   uint32 `json:"sum"` // CRC-32C of the last 4 KiB of these bytes
}

const markedEnd = 4 << 10

// MarkHistory is the mark of the history in dir as it is; of none, that of an empty one.
func MarkHistory(dir string) (HistoryMark, error) {
	f, err := OpenHistory(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return HistoryMark{}, nil
	}
	if err != nil {
		return HistoryMark{}, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return HistoryMark{}, err
	}
	at, _, err := layoutOf(f)
	if err != nil {
		return HistoryMark{}, err
	}
	sum, err := sumBefore(f, st.Size())
	return HistoryMark{Bytes: st.Size() + at.shift, Sum: sum}, err
}

// markLines is the mark of the history in dir up to the end of its last line that is whole: what a
// power cut has left of one behind it is replaced.
func markLines(dir string) (*HistoryMark, error) {
	f, err := OpenHistory(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return &HistoryMark{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	at, _, err := layoutOf(f)
	if err != nil {
		return nil, err
	}
	last, err := readEnd(f)
	if err != nil {
		return nil, err
	}
	end := st.Size()
	if !last.last.ended {
		end = last.last.at
	}
	sum, err := sumBefore(f, end)
	return &HistoryMark{Bytes: end + at.shift, Sum: sum}, err
}

func sumBefore(f io.ReaderAt, end int64) (uint32, error) {
	b := make([]byte, min(end, markedEnd))
	_, err := f.ReadAt(b, end-int64(len(b)))
	return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)), err
}

// HistoryGone is the line that tells for good that the history in dir does not begin as it was when
// s was marked; nil: it does, or it is not known, or it cannot be read, which is told otherwise.
func (s *StartSheet) HistoryGone(dir string) *StartSheet {
	if s.History == nil || s.History.Bytes == 0 {
		return nil
	}
	f, err := OpenHistory(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		defer f.Close()
		if is, err := s.History.begins(f); err != nil || is {
			return nil
		}
	}
	return &StartSheet{End: causeCut, Part: true, Identity: s.Identity, Sheet: emptyAt(s.Sheet.At)}
}

// Follower stands for a start behind that of s which has left no sheet that can be read: what the
// log has of it, up to the record logStored, is all that is known. closed is s as the history has
// it. nil: there was none.
func (s *StartSheet) Follower(logStored uint64) (closed, follower *StartSheet) {
	closed = s.closed
	if closed == nil || logStored <= closed.LogStored {
		return nil, nil
	}
	since := s.next
	if since == 0 {
		since = closed.Sheet.At + 1
	}
	follower = &StartSheet{
		End: causeRebuilt, Uncertain: true, Identity: closed.Identity, LogStored: closed.LogStored,
		Positions: map[string][]ledger.Position{}, Sheet: ledger.NewSheet(0, int64(since), nil),
		LogMissing: s.LogMissing, Found: s.Found, ClockWrong: s.ClockWrong,
	}
	if closed.LogEvicted != nil { // what was removed since is the follower's
		before := *closed.LogEvicted
		if closed.Sheet.Log != nil {
			before += closed.Sheet.Log.Evicted
		}
		follower.LogEvicted = &before
	}
	for source, ps := range closed.Positions {
		follower.Positions[source] = slices.Clone(ps)
	}
	return closed, follower
}

// FollowerGone is the line that tells for good that a start behind that of s may have left no sheet
// that can be read, where the log that it was on is not at hand; nil: nothing speaks for one.
func (s *StartSheet) FollowerGone() *StartSheet {
	if !s.isOlder {
		return nil
	}
	return s.RecordsGone()
}

// RecordsGone is the line that tells for good that what was lost behind the sheet is not known.
func (s *StartSheet) RecordsGone() *StartSheet {
	return &StartSheet{End: causeRebuilt, Part: true, Identity: s.Identity, Sheet: emptyAt(s.Sheet.At)}
}

// emptyAt is a sheet that says nothing, which balances.
func emptyAt(at ledger.Time) ledger.Sheet { return ledger.NewSheet(int64(at), 0, nil) }

// begins reports whether a history begins as it was when it was marked, as far as it is not folded.
func (m *HistoryMark) begins(f *os.File) (bool, error) {
	st, err := f.Stat()
	if err != nil {
		return false, err
	}
	at, _, err := layoutOf(f)
	if err != nil {
		return false, err
	}
	end := m.Bytes - at.shift
	if end > st.Size() {
		return false, nil
	}
	if at.head > 0 && end-markedEnd < at.head {
		return true, nil
	}
	sum, err := sumBefore(f, end)
	return sum == m.Sum, err
}

// tellsOfGaps reports whether s stands where the history, or a sheet, has lost something.
func (s *StartSheet) tellsOfGaps() bool { return s.End == causeRebuilt || s.End == causeCut }

// isWhole reports whether s is the sheet of a whole start of which is known when it began.
func (s *StartSheet) isWhole() bool { return !s.Part && s.Sheet.Since != 0 }

// sameStart reports whether s and o are sheets of the same start.
func (s *StartSheet) sameStart(o *StartSheet) bool {
	return o != nil && s.isWhole() && o.isWhole() && s.Sheet.Since == o.Sheet.Since
}

// historyLine is a line of the history.
type historyLine struct {
	at    int64 // where it begins, in bytes
	text  []byte
	ended bool // it has its line feed
	sheet StartSheet
	err   error // why it cannot be read
}

// read takes the sheet out of the text.
func (l *historyLine) read() {
	l.sheet = StartSheet{}
	l.err = json.Unmarshal(l.text, &l.sheet)
}

// isRestOf reports whether a line that cannot be read is what a power cut, a kill or a full disk
// has left of the line of s: nothing is lost by it, for s tells it again. It says when its start
// began, or has no end and is too short to say it.
func (l *historyLine) isRestOf(s *StartSheet) bool {
	if l.err == nil || errors.Is(l.err, errLongLine) {
		return false
	}
	const head, since = `{"end":"`, `"since":`
	text := bytes.TrimRight(l.text, "\x00") // some file systems leave zeros
	if _, from, ok := bytes.Cut(text, []byte(since)); ok {
		if value, _, ok := bytes.Cut(from, []byte{','}); ok {
			var at ledger.Time
			return json.Unmarshal(value, &at) == nil && at == s.Sheet.Since
		}
	}
	n := min(len(text), len(head))
	return !l.ended && string(text[:n]) == head[:n]
}

// historyEnd is the end of a history.
type historyEnd struct {
	newest *StartSheet   // of a whole start; nil: there is none in the last 16 MiB
	parts  []*StartSheet // behind it
	last   historyLine   // of an empty one: an ended line, which can be read
}

// has reports whether a sheet is there already.
func (e *historyEnd) has(s *StartSheet) bool {
	if !s.Part {
		return s.sameStart(e.newest)
	}
	return slices.ContainsFunc(e.parts,
		func(p *StartSheet) bool { return p.isPartOf(s) && s.Parts != 0 && p.Parts == s.Parts })
}

func readEnd(f *os.File) (e historyEnd, err error) {
	e.last.ended = true
	st, err := f.Stat()
	if err != nil || st.Size() == 0 {
		return e, err
	}
	for n := int64(64 << 10); ; n *= 4 {
		n = min(n, st.Size())
		b := make([]byte, n)
		if _, err := f.ReadAt(b, st.Size()-n); err != nil {
			return e, err
		}
		all := n == st.Size()
		if e.read(b, st.Size()-n, all); e.newest != nil || all || n >= int64(maxSheetLine) {
			return e, nil
		}
	}
}

// read takes in the last bytes of a history, which begin at from; all: there are no others.
func (e *historyEnd) read(b []byte, from int64, all bool) {
	e.parts = nil
	text, ended := bytes.CutSuffix(b, []byte{'\n'})
	for isLast := true; ; isLast = false {
		begin := bytes.LastIndexByte(text, '\n') + 1
		if begin == 0 && !all { // it may begin before; as the last one of 16 MiB it cannot be read
			if isLast {
				e.last = historyLine{at: from, text: text, ended: ended, err: errLongLine}
			}
			return
		}
		l := historyLine{at: from + int64(begin), text: text[begin:], ended: ended}
		l.read()
		if isLast {
			e.last = l
		}
		if l.err == nil && l.sheet.isWhole() {
			e.newest = &l.sheet
			return
		}
		if l.err == nil && l.sheet.Part {
			e.parts = append(e.parts, &l.sheet)
		}
		if begin == 0 {
			return
		}
		text, ended = text[:begin-1], true
	}
}

var errLongLine = errors.New("it is longer than 16 MiB")

// EachStart reads a history. A line that cannot be read, which a power cut can leave, keeps nothing
// behind it from being read: the first such line is the error at the end.
// A line that stands there again is passed over.
func EachStart(r io.Reader, f func(StartSheet) error) error {
	var torn error
	told := toldLines{}
	err := eachLine(r, func(l *historyLine) error {
		if l.err != nil {
			torn = cmp.Or(torn, l.err)
			return nil
		}
		if told.again(&l.sheet) {
			return nil
		}
		return f(l.sheet)
	})
	return errors.Join(torn, err)
}

// toldLines is which lines of a history were read: somebody may have copied some of them, and no
// start has lost anything twice.
type toldLines map[lineName]bool

// lineName is what no two lines of a history have in common.
type lineName struct {
	identity string
	since    ledger.Time
	part     uint64 // 0: the line is of the whole start
}

// again reports whether the line of s was read before. One that does not say whose it is was not.
func (t toldLines) again(s *StartSheet) bool {
	name := lineName{identity: s.Identity, since: s.Sheet.Since}
	if s.Part {
		name.part = s.Parts
	}
	if s.Folded != nil || name.since == 0 || s.Part && name.part == 0 {
		return false
	}
	was := t[name]
	t[name] = true
	return was
}

// eachLine calls f with each line of a history that is not empty. The line is valid until f
// returns. Of one that is too long it has the beginning.
func eachLine(r io.Reader, f func(l *historyLine) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	l := historyLine{}
	for n := 1; ; n++ {
		begin := l.at
		l.text = l.text[:0]
		err := readLine(in, &l)
		if err != nil && err != io.EOF {
			return err
		}
		next := l.at
		if len(l.text) > 0 {
			if l.err = errLongLine; next-begin <= int64(maxSheetLine) {
				l.read()
			}
			if l.err != nil {
				l.err = fmt.Errorf("%s: line %d cannot be read: %w", HistoryFile, n, l.err)
			}
			l.at = begin
			if err := f(&l); err != nil {
				return err
			}
			l.at = next
		}
		if err == io.EOF {
			return nil
		}
	}
}

// readLine reads the text of the next line, at most so much of it as a line may have, and moves
// l.at behind it.
func readLine(in *bufio.Reader, l *historyLine) error {
	for {
		part, err := in.ReadSlice('\n')
		l.at += int64(len(part))
		part, l.ended = bytes.CutSuffix(part, []byte{'\n'})
		l.text = append(l.text, part[:min(len(part), maxSheetLine-len(l.text))]...)
		if err != bufio.ErrBufferFull {
			return err
		}
	}
}
