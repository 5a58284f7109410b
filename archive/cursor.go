package archive

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/tallywheel/tallywheel/seglog"
)

// Archive is a log whose records can be read: that of a running recorder, or one in a folder.
type Archive struct {
	Streams *Streams
	read    func(from uint64) *seglog.Reader
	back    func(before uint64) *seglog.Reverse
	log     *seglog.Log   // nil: it is read from a folder …
	dir     seglog.FS     // … which is this
	known   seglog.Extent // … and of which the recorder's sheet says so much
}

// Live is the archive of a log that is open for writing.
func Live(log *seglog.Log, streams *Streams) *Archive {
	return &Archive{Streams: streams, read: log.NewReader, back: log.NewReverse, log: log}
}

// ErrNone says that a folder holds no log.
var ErrNone = errors.New("there is no log")

// Folder opens the folder of a log for those who need no names. There must be a log; see ErrNone.
func Folder(path string) (seglog.FS, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	dir, err := seglog.Dir(path)
	if err != nil {
		return nil, err
	}
	if there, err := seglog.Exists(dir); err != nil || !there {
		return nil, cmp.Or(err, fmt.Errorf("%w in %s", ErrNone, path))
	}
	return dir, nil
}

// Open is the archive in a folder, which may be written to meanwhile. There must be a log, see
// ErrNone, and its table of streams, see ErrStreams.
func Open(path string) (*Archive, error) {
	dir, err := Folder(path)
	if err != nil {
		return nil, err
	}
	streams, err := LoadStreams(path)
	if err != nil {
		return nil, err
	}
	known := Known(path) // first: the log may be written to
	read := func(from uint64) *seglog.Reader {
		r := seglog.NewReader(dir, from)
		r.Expect(known)
		return r
	}
	back := func(before uint64) *seglog.Reverse { return seglog.NewReverse(dir, before) }
	return &Archive{streams, read, back, nil, dir, known}, nil
}

// Last is the sequence of the last record that is there to be read; 0: there is none yet.
func (a *Archive) Last() (uint64, error) {
	if a.log != nil {
		return a.log.Position().Stored, nil
	}
	return seglog.LastSequence(a.dir)
}

// Durable is the last record that a power cut cannot take, of a log that is open for writing.
func (a *Archive) Durable() uint64 { return a.log.Position().Durable }

// Before says what the log has not any more of what a query asks for before the oldest record that
// is there: a walk from the oldest record on tells of no such gap, so whoever begins one asks here
// first. Of a query with a time see ReachesBack.
func (a *Archive) Before(q Query) (gone []seglog.GapError, err error) {
	if q.From > 1 || q.Back { // a walk tells of it; towards the oldest it ends there
		return nil, nil
	}
	if a.log == nil {
		gone, err = seglog.Before(a.dir, a.known)
	} else if first := a.First(); first > 1 {
		gone = []seglog.GapError{{From: 1, To: first - 1, Cause: seglog.GapRemoved}}
	}
	if err != nil || len(gone) == 0 || !a.ReachesBack(q.Since) {
		return nil, err
	}
	return gone, nil
}

// ReachesBack reports whether a query for records since a time, in ns since 1970, asks for those,
// too, that are gone before the oldest one that is there: that one is not older. It may be that
// none of those was made then, for nobody knows their times. 0: any time, which asks for all of
// them.
func (a *Archive) ReachesBack(since int64) bool {
	if since == 0 {
		return true
	}
	r := a.read(0)
	defer r.Close()
	for {
		rec, err := r.Next()
		var gap *seglog.GapError
		if !errors.As(err, &gap) {
			return err != nil || rec.Time >= since // what is wrong with that record a walk says
		}
	}
}

// goneBefore is how many records Before tells of, of those below a number; 0: of all.
func (a *Archive) goneBefore(q Query, below uint64) (n uint64, err error) {
	gone, err := a.Before(q)
	for _, gap := range gone {
		if below > 0 {
			gap.To = min(gap.To, below-1)
		}
		if gap.From <= gap.To {
			n += gap.To - gap.From + 1
		}
	}
	return n, err
}

// First is the oldest record that is kept, of a log that is open for writing.
func (a *Archive) First() uint64 { return a.log.Position().First }

// BytesAfter is about how many bytes of the log hold the records behind seq, of a log that is open
// for writing.
func (a *Archive) BytesAfter(seq uint64) int64 { return a.log.BytesAfter(seq) }

// Identity is that of the log, of one that is open for writing.
func (a *Archive) Identity() [16]byte { return a.log.Identity() }

// Checkpoint is the newest of a log that proves what it holds, and is open for writing; nil: there
// is none.
func (a *Archive) Checkpoint() []byte { return a.log.Checkpoint() }

// Query asks for records of the log. The zero value asks for all frames, the oldest first.
type Query struct {
	Back       bool   // the newest first
	Before     uint64 // with Back: begin at the record before this one; 0: at the newest
	Source     string // see Selects; "" means all
	From       uint64 // without Back: first sequence; 0 or 1: the oldest record, or the first one of Since
	Since      int64  // ns since 1970: skip records before; 0 means none
	Until      int64  // ns since 1970: skip records after, for a clock may step back; 0 means none
	Quarantine bool   // quarantined bytes instead of frames
	Wire       bool   // frames and quarantined bytes; Quarantine says nothing then
	Contains   []byte // the data has these bytes; empty: it may have any
}

// takes reports whether records of a stream may answer the query. known is false where the table
// does not name the stream.
func (q Query) takes(s Stream, known bool) bool {
	return (q.Source == "" || known && Selects(q.Source, s.Source)) && (q.Wire || s.Quarantine == q.Quarantine)
}

// Cursor goes through the records that answer a query, in order. It belongs to one goroutine.
type Cursor struct {
	Query Query
	// OnGap is told, before the record behind it comes, of records asked for that are not in the
	// log any more; its error ends the walk. nil: nobody is told.
	OnGap func(*seglog.GapError) error

	in     *Archive
	r      walk   // nil before the first record
	last   Mark   // of what was looked at last
	sought uint64 // records up to it were there when a time was looked for: they are before it, or come
	empty  int    // looks in a row that found nothing more
	met    map[uint32]*taken
	near   *taken // of the stream that was met last
}

// taken is a stream that the table names, and whether its records may answer: asking the table for
// each record would take longer than reading it.
type taken struct {
	Stream
	takes bool
}

// stream is what the query makes of a stream. One that the table does not name yet is asked for
// again: the log may be written to.
func (c *Cursor) stream(number uint32) *taken {
	if c.near != nil && c.near.Number == number {
		return c.near
	}
	if t, ok := c.met[number]; ok {
		c.near = t
		return t
	}
	s, known := c.in.named(number)
	if !known {
		s.Number, s.Source = number, unnamed(number)
	}
	t := &taken{s, c.Query.takes(s, known)}
	if known {
		if c.met == nil {
			c.met = map[uint32]*taken{}
		}
		c.met[number] = t
	}
	return t
}

// named is what the table says of a stream. In a folder another process may have given the number
// since the table was read.
func (a *Archive) named(number uint32) (Stream, bool) {
	if a.log != nil {
		return a.Streams.By(number)
	}
	return a.Streams.asked(number)
}

// walk is a reader of the log, in one of the two directions.
type walk interface {
	Next() (seglog.Record, error)
	End() error
	Close() error
}

// Records is a cursor before the first record. The caller closes it.
func (a *Archive) Records(c Cursor) *Cursor {
	c.in = a
	return &c
}

// Close ends the walk.
func (c *Cursor) Close() error {
	if c.r == nil {
		return nil
	}
	return c.r.Close()
}

// lookAround is how many looks in a row find nothing before the end is looked at again: is it one?
const lookAround = 10

// Look looks at the next record of the log, or gap: a caller who must not search for long looks
// again as long as it may. ok reports whether it is a record that answers the query; its data is a
// view, valid until the next look. io.EOF says that there is no more yet: Look may be called again.
// Damage is a [*seglog.CorruptError], even where it looks like the end of the log.
func (c *Cursor) Look() (out Record, ok bool, err error) {
	rec, of, ok, err := c.Next()
	if ok {
		out = Describe(*of, rec)
	}
	return out, ok, err
}

// Next is Look for those who need no description: it gives the record as the log has it, and its
// stream, which is nil unless ok. [Payload] takes what stands before quarantined bytes off them.
func (c *Cursor) Next() (rec seglog.Record, of *Stream, ok bool, err error) {
	if err := c.Begin(); err != nil {
		return rec, nil, false, err
	}
	rec, err = c.r.Next()
	if err == io.EOF && c.empty%lookAround == 0 {
		if err = c.r.End(); err == nil {
			rec, err = c.r.Next()
		}
	}
	if err != nil {
		return rec, nil, false, c.stopped(err)
	}
	c.empty, c.last = 0, Mark{Seq: rec.Seq, Time: rec.Time}
	q, t := &c.Query, c.stream(rec.Stream)
	if !t.takes || q.Since > rec.Time || q.Until > 0 && q.Until < rec.Time ||
		!q.contains(Payload(&t.Stream, rec.Data)) {
		return rec, nil, false, nil
	}
	return rec, &t.Stream, true, nil
}

// stopped is what an error of the walk is to who asked: nil where it is a gap, and that is told. It
// is apart from Next, where a place for the gap would be made for each record.
func (c *Cursor) stopped(err error) error {
	var gap *seglog.GapError
	switch {
	case errors.As(err, &gap):
		if c.last = (Mark{Seq: gap.To}); c.Query.Back {
			c.last.Seq = gap.From
		}
		if c.OnGap != nil {
			return c.OnGap(gap)
		}
		return nil
	case err == io.EOF:
		if c.empty++; c.last.Seq == 0 { // all of those are before the time
			c.last.Seq = c.sought
		}
	}
	return err
}

// Mark is where the walk is: everything up to it has been looked at, or with Back down to it, and
// another walk goes on behind it, or before it.
func (c *Cursor) Mark() Mark {
	m := c.last
	if c.Query.Back && m.Seq == 0 {
		m.Seq = c.Query.Before
	} else if !c.Query.Back && m.Seq+1 < c.Query.From {
		m = Mark{Seq: c.Query.From - 1}
	}
	if c.in.log != nil {
		m.Log = c.in.log.Identity()
	}
	return m
}

// Again has a walk towards the newest begin anew behind what was looked at last: at damage a reader
// stands for good, though the segment may be put back.
func (c *Cursor) Again() {
	if c.last.Seq > 0 {
		c.Query.From = c.last.Seq + 1
	}
	_ = c.Close() // of a file that nobody reads any more
	c.r, c.empty = nil, 0
}

// Begin opens the log at the first record that may answer; the first Look does so, if nobody has.
func (c *Cursor) Begin() error {
	if c.r != nil {
		return nil
	}
	if c.Query.Back { // a time is no place to begin at: behind a step of the clock others have it, too
		c.r = c.in.back(c.Query.Before)
		return nil
	}
	r := c.in.read(c.Query.From)
	if c.Query.Since > 0 && c.Query.From <= 1 { // else every record from there on is asked for its time
		if c.in.log != nil {
			c.sought = c.in.log.Position().Stored
		}
		if err := r.SeekTime(c.Query.Since); err != nil {
			return errors.Join(err, r.Close())
		}
	}
	c.r = r
	return nil
}

// Bounds are those of a page. Each is at least 1.
type Bounds struct {
	Records int           // at most so many
	Bytes   int           // of their data; one record is there, whatever its size
	Search  time.Duration // how long to look for them; one record of the log is looked at, however long that takes
}

// Page is where a page ended.
type Page struct {
	Last Mark   // everything up to it, or with Back down to it, has been looked at: what follows is asked for with it
	End  bool   // the log had no more; with Back: it begins here
	Gone uint64 // records asked for that are not in the log any more; with Since, see ReachesBack
}

// Page calls each with the records that answer the query, until a bound is reached or the log ends.
// Their data is a view, valid until each returns, whose error ends the page. The page is good up to
// where it ended, with an error, too.
func (a *Archive) Page(q Query, b Bounds, each func(Record) error) (p Page, err error) {
	c := a.Records(Cursor{Query: q, OnGap: func(gap *seglog.GapError) error {
		p.Gone += gap.To - gap.From + 1
		return nil
	}})
	defer c.Close()
	if q.Since > 0 && !q.Back { // else the oldest record, whichever it is, was asked for
		if p.Gone, err = a.goneBefore(q, 0); err != nil {
			return p, err
		}
	}
	began, n, bytes := time.Now(), 0, 0
	for n < b.Records {
		before := c.Mark()
		r, ok, err := c.Look()
		switch {
		case err == io.EOF:
			p.Last, p.End = c.Mark(), true
			if q.Since > 0 && q.Back { // what a walk the other way is told first
				gone, err := a.goneBefore(Query{Since: q.Since}, p.Last.Seq)
				p.Gone += gone
				return p, err
			}
			return p, nil
		case err == nil && ok && n > 0 && bytes+len(r.Data) > b.Bytes:
			p.Last = before
			return p, nil
		case err == nil && ok:
			n, bytes, err = n+1, bytes+len(r.Data), each(r)
		}
		if err != nil {
			p.Last = before
			return p, err
		}
		if time.Since(began) > b.Search {
			break
		}
	}
	p.Last = c.Mark()
	return p, nil
}
