package seglog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sort"
)

// Record is one record of the log.
type Record struct {
	Seq    uint64
	Time   int64 // ns since 1970
	Stream uint32
	Data   []byte // a view, valid until the next call of Next
}

// GapError says that records are not in the log any more: retention removed them, or a repair could not save them.
// The reader goes on behind them.
type GapError struct{ From, To uint64 }

// Error implements error.
func (e *GapError) Error() string {
	return fmt.Sprintf("records %d to %d are not in the log any more", e.From, e.To)
}

// Reader reads records in order. It belongs to one goroutine at a time, sees only what is committed, and may
// read while the log is written, from another process too.
type Reader struct {
	dir   FS
	live  *Log // nil when the log is read from outside
	next  uint64
	since int64 // records before this time are passed over, until the first that is not

	base  uint64 // of the open segment; 0 if none
	file  File
	sc    *scanner
	queue []rawFrame // of the current batch, not handed out yet
}

// NewReader reads the directory from the record from on (0: from the oldest).
func NewReader(dir FS, from uint64) *Reader { return &Reader{dir: dir, next: max(1, from)} }

// NewReader reads the log from the record from on (0: from the oldest).
func (l *Log) NewReader(from uint64) *Reader {
	r := NewReader(l.cfg.FS, from)
	r.live = l
	return r
}

// Close releases the reader's file.
func (r *Reader) Close() error {
	if r.file == nil {
		return nil
	}
	f := r.file
	r.file, r.base, r.sc, r.queue = nil, 0, nil, nil
	return f.Close()
}

// Next returns the next record; io.EOF when there is none yet, after which it may be called again; a [*GapError] where
// records are gone, and a [*CorruptError] where they cannot be read: that one is final.
func (r *Reader) Next() (Record, error) {
	for {
		if r.live != nil && r.next > r.live.visible() {
			return Record{}, io.EOF
		}
		if len(r.queue) == 0 {
			if err := r.load(); err != nil {
				return Record{}, err
			}
			continue
		}
		f := r.queue[0]
		if f.kind == kindRecord && r.live != nil && f.seq > r.live.visible() {
			return Record{}, io.EOF
		}
		r.queue = r.queue[1:]
		if f.seq < r.next {
			continue
		}
		if f.kind == kindHole || f.seq > r.next {
			to := f.seq
			if f.kind == kindRecord { // the record itself is there: it comes with the next call
				to--
				r.queue = slices.Insert(r.queue, 0, f)
			}
			gap := &GapError{r.next, to}
			r.next = to + 1
			return Record{}, gap
		}
		r.next = f.seq + 1
		if f.time < r.since {
			continue
		}
		r.since = 0
		return Record{f.seq, f.time, f.stream, f.data}, nil
	}
}

func (l *Log) visible() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stored
}

// load reads the next batch, going to the next segment where this one ends.
func (r *Reader) load() error {
	if r.sc == nil {
		return r.openAt()
	}
	if r.nextBatch() {
		return nil
	}
	if r.nextBatch() { // this try sees what was written since the first one read ahead
		return nil
	}
	if r.sc.readErr != nil {
		return fmt.Errorf("read %s: %w", segmentName(r.base), r.sc.readErr)
	}
	// The end of the segment, the end for now, or a file that has been given to a new segment meanwhile.
	if again, err := newScanner(r.file, r.base); err != nil || again.salt != r.sc.salt {
		return r.reopen()
	}
	bases, err := segmentBases(r.dir)
	if err != nil {
		return err
	}
	i, there := slices.BinarySearch(bases, r.base)
	if !there {
		return r.reopen()
	}
	if i == len(bases)-1 {
		return io.EOF
	}
	// There is a next one, so this one is complete: what is missing now is missing.
	if r.nextBatch() {
		return nil
	}
	if r.sc.next < bases[i+1] {
		return &CorruptError{segmentName(r.base), r.sc.off + r.sc.bad, fmt.Sprintf("record %d cannot be read", r.sc.next)}
	}
	r.next = max(r.next, bases[i+1])
	return r.reopen()
}

func (r *Reader) nextBatch() bool {
	b, err := r.sc.batch()
	if err == nil {
		r.queue = b.frames
	}
	return err == nil
}

func (r *Reader) reopen() error {
	if err := r.Close(); err != nil {
		return err
	}
	return r.openAt()
}

// openAt opens the segment that holds the record r.next, at a batch not far before it.
func (r *Reader) openAt() error {
	bases, err := segmentBases(r.dir)
	if err != nil {
		return err
	}
	if len(bases) == 0 {
		return io.EOF
	}
	i := sort.Search(len(bases), func(i int) bool { return bases[i] > r.next }) - 1
	if i < 0 {
		gone := &GapError{r.next, bases[0] - 1}
		first := r.next == 1 // asked for the oldest: nothing is missing that was asked for
		r.next = bases[0]
		if !first {
			return gone
		}
		i = 0
	}
	f, err := r.dir.Open(segmentName(bases[i]))
	if errors.Is(err, fs.ErrNotExist) { // removed since the listing
		return nil
	}
	if err != nil {
		return err
	}
	sc, err := newScanner(f, bases[i])
	if err != nil {
		return errors.Join(err, f.Close())
	}
	r.base, r.file, r.sc = bases[i], f, sc
	if r.next > bases[i] {
		if x, err := r.index(bases[i]); err == nil {
			if e, ok := x.bySequence(r.next); ok {
				sc.seek(e.off, e.first)
			}
		}
	}
	return nil
}

// index is that of a segment: the one in memory for the segment that is being written here.
func (r *Reader) index(base uint64) (*index, error) {
	if l := r.live; l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.seg.base == base {
			return l.seg.index, nil
		}
	}
	return loadIndex(r.dir, base)
}

// SeekTime makes the next record the first one not earlier than t, in ns since 1970, that the log holds.
func (r *Reader) SeekTime(t int64) error {
	if err := r.Close(); err != nil {
		return err
	}
	bases, err := segmentBases(r.dir)
	if err != nil || len(bases) == 0 {
		return err
	}
	var failed error
	i := sort.Search(len(bases)-1, func(i int) bool {
		x, err := r.index(bases[i])
		if err != nil {
			failed = err
			return true
		}
		return x.maxTime() >= t
	})
	if failed != nil {
		return failed
	}
	r.next, r.since = bases[i], t
	x, err := r.index(bases[i])
	if err != nil {
		return err
	}
	if e, ok := x.byTime(t); ok {
		r.next = e.first
	}
	return nil
}

// segmentBases lists the segments by the sequence of their first record.
func segmentBases(dir FS) (bases []uint64, err error) {
	names, err := dir.List()
	for _, name := range names {
		if base, ok := segmentBase(name); ok {
			bases = append(bases, base)
		}
	}
	slices.Sort(bases)
	return bases, err
}

// Segment is what a listing says of one file.
type Segment struct {
	Name    string `json:"name"`
	Bytes   int64  `json:"bytes"`   // size of the file
	First   uint64 `json:"first"`   // sequence of its first record
	Created int64  `json:"created"` // ns since 1970
}

// Segments lists the segments, the oldest first.
func Segments(dir FS) ([]Segment, error) {
	bases, err := segmentBases(dir)
	if err != nil {
		return nil, err
	}
	out := make([]Segment, 0, len(bases))
	for _, base := range bases {
		f, err := dir.Open(segmentName(base))
		if err != nil {
			return nil, err
		}
		s := Segment{Name: segmentName(base), First: base}
		s.Bytes, err = f.Size()
		if sc, scErr := newScanner(f, base); scErr == nil {
			s.Created = sc.created
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// LastSequence is the sequence of the last committed record; 0 if there is none.
func LastSequence(dir FS) (uint64, error) {
	bases, err := segmentBases(dir)
	if err != nil || len(bases) == 0 {
		return 0, err
	}
	base := bases[len(bases)-1]
	x, err := loadIndex(dir, base)
	if err != nil {
		return 0, err
	}
	return max(x.last, base-1), nil
}
