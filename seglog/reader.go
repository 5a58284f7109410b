package seglog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"sort"
)

// Record is one record of the log, or one of the notes between them.
type Record struct {
	Seq    uint64
	Time   int64 // ns since 1970
	Stream uint32
	Data   []byte // a view, valid until the next call of Next
	Offset uint64 // where in the wire it began; NoOffset
	Kind   Kind   // other than KindRecord only for readers that ask for it: see Reader.Notes
}

// Reader reads records in order. It belongs to one goroutine at a time, sees only what is
// committed, and may read while the log is written, from another process too.
type Reader struct {
	dir   FS
	live  *Log // nil when the log is read from outside
	log   [16]byte
	known Extent
	notes bool
	next  uint64
	seen  uint64 // of a live log: records up to it are known to be visible
	since int64  // if seeks is set
	seeks bool   // records before since are passed over, until the first that is not

	bases []uint64 // of the segments, as they were listed last
	base  uint64   // of the open segment; 0 if none
	file  File
	sc    *scanner
	room  buffers    // for the next scanner
	queue []rawFrame // of the current batch, not handed out yet
	ended int64      // where End found the end; 0 if it did not

	closed bool // by its owner
}

// NewReader reads the directory from the record from on (0: from the oldest).
func NewReader(dir FS, from uint64) *Reader { return &Reader{dir: dir, next: max(1, from)} }

// NewReader reads the log from the record from on (0: from the oldest).
func (l *Log) NewReader(from uint64) *Reader {
	r := NewReader(l.cfg.FS, from)
	r.live, r.log = l, l.identity
	return r
}

// Notes makes Next return the notes between the records, too: see Kind.
func (r *Reader) Notes() { r.notes = true }

// Expect tells a reader from outside what the log held, for End.
func (r *Reader) Expect(known Extent) {
	r.known, _ = known.withSaid(r.dir) // an error shows again
}

// Identity is that of the log that is read; zero as long as the reader has met no segment of
// version 2.
func (r *Reader) Identity() [16]byte { return r.log }

// Close ends the reading: what follows is [os.ErrClosed].
func (r *Reader) Close() error {
	r.closed = true
	return r.release()
}

// unusable says why nothing can be read.
func (r *Reader) unusable() error {
	switch {
	case r.closed:
		return fmt.Errorf("seglog: reader: %w", os.ErrClosed)
	case r.dir == nil:
		return errNoDir
	}
	return nil
}

// release closes the reader's file.
func (r *Reader) release() error {
	if r.file == nil {
		return nil
	}
	f := r.file
	r.room = r.sc.buffers
	r.file, r.base, r.sc, r.queue, r.ended = nil, 0, nil, nil, 0
	return f.Close()
}

// Next returns the next record, whose sequence may be some higher where there are notes between;
// io.EOF when there is none yet, see End; a [*GapError] where records are gone, and a
// [*CorruptError] where they cannot be read: what follows those comes after [Reader.Skip]. After
// any other error, of the disk, it may be called again, as after io.EOF, and goes on where it was.
func (r *Reader) Next() (Record, error) {
	if err := r.unusable(); err != nil {
		return Record{}, err
	}
	for {
		if r.beyond(r.next) {
			return Record{}, io.EOF
		}
		if len(r.queue) == 0 {
			if err := r.load(); err != nil {
				return Record{}, err
			}
			continue
		}
		f := r.queue[0]
		if f.kind != kindHole && r.beyond(f.seq) {
			return Record{}, io.EOF
		}
		r.queue = r.queue[1:]
		if f.seq < r.next {
			continue
		}
		if f.kind == kindHole || f.seq > r.next {
			to := f.seq
			if f.kind != kindHole { // the record itself is there: it comes with the next call
				to--
				r.queue = slices.Insert(r.queue, 0, f)
			}
			gap := &GapError{From: r.next, To: to}
			if f.kind == kindHole && holeFlags(f)&holeUnsynced != 0 {
				gap.Cause = GapUnsynced
			}
			r.next = to + 1
			return Record{}, gap
		}
		r.next = f.seq + 1
		rec, known := f.record()
		if !known || rec.Kind != KindRecord && !r.notes || r.seeks && f.time < r.since {
			continue
		}
		r.seeks = false
		return rec, nil
	}
}

// beyond reports whether a record of a live log is not to be seen yet.
func (r *Reader) beyond(seq uint64) bool {
	if r.live != nil && seq > r.seen {
		r.seen = r.live.visible()
	}
	return r.live != nil && seq > r.seen
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
	if !r.sc.whole && r.nextBatch() { // this try sees what was written since the first one read ahead
		return nil
	}
	if r.sc.readErr != nil {
		return fmt.Errorf("read %s: %w", segmentName(r.base), r.sc.readErr)
	}
	// The end of the segment, the end for now, or a file that has been given to a new segment
	// meanwhile.
	if !r.sc.isSame() {
		return r.reopen()
	}
	at, there := slices.BinarySearch(r.bases, r.base)
	if !there || at == len(r.bases)-1 { // as far as was known: there may be more now
		if err := r.list(); err != nil {
			return err
		}
		if at, there = slices.BinarySearch(r.bases, r.base); !there {
			return r.reopen()
		}
	}
	if last := at == len(r.bases)-1; last && r.live == nil {
		return io.EOF
	} else if !r.sc.whole && r.nextBatch() {
		return nil
	} else if r.sc.readErr != nil {
		return fmt.Errorf("read %s: %w", segmentName(r.base), r.sc.readErr)
	} else if !last && (r.sc.next >= r.bases[at+1] || r.foreign(r.bases[at+1])) {
		r.next = max(r.next, r.bases[at+1])
		return r.reopen() // which names one of another log
	} else if !last && r.sc.next < r.bases[at+1] && r.nothingFollows() {
		return r.hole(r.bases[at+1])
	}
	// There is a next one, so this one is complete; or the log itself knows that there is more.
	// What is missing now is missing.
	if passed, err := r.pass(r.next); passed || err != nil {
		return err
	}
	return r.damage(fmt.Sprintf("record %d cannot be read", r.sc.next))
}

// foreign reports whether a segment is known to belong to another log.
func (r *Reader) foreign(base uint64) bool {
	h, err := readHead(r.dir, base)
	none := [16]byte{}
	return err == nil && h.ok && h.log != none && r.log != none && h.log != r.log
}

// nothingFollows reports whether the file ends where reading stopped, or no frame stands behind:
// what is missing there was cut, or was in a segment that is gone.
func (r *Reader) nothingFollows() bool {
	size, err := r.file.Size()
	if err != nil {
		return false
	}
	w := window{f: r.sc.f, size: size}
	stop := r.sc.off + r.sc.bad
	if b, err := w.at(stop, frameHeader); err != nil {
		return false
	} else if stop+int64(max(frameHeader, frameWants(b))) > size {
		return true
	}
	_, frames, err := r.sc.laterDurable(size)
	return err == nil && !frames
}

// pass goes on behind the damage where reading stopped, unless that is behind the record seq, and
// reports whether it did. Reading begins at a place that the index knows, some way before the
// record that was asked for: damage between the two is no affair of who asked.
func (r *Reader) pass(seq uint64) (bool, error) {
	if r.sc == nil || r.sc.next >= seq {
		return false, nil
	}
	size, err := r.file.Size()
	if err != nil {
		return false, err
	}
	off, next, err := r.sc.behind(size)
	if err != nil || off == 0 || next > seq {
		return false, err
	}
	r.sc.seek(off, next)
	r.next = max(r.next, next)
	return true, nil
}

// Skip goes on behind what Next cannot read, after a [*CorruptError]: with the next batch that is
// whole and stands behind the end of another one, or the next segment. It returns which records it
// passes over, of which there may be none; io.EOF where nothing follows. Of those records a repair
// keeps the ones that are whole.
func (r *Reader) Skip() (*GapError, error) {
	if err := r.unusable(); err != nil {
		return nil, err
	}
	gap := &GapError{From: r.next}
	passed, err := r.pass(math.MaxUint64)
	if err != nil {
		return nil, err
	}
	if !passed {
		if err := r.list(); err != nil {
			return nil, err
		}
		i := sort.Search(len(r.bases), func(i int) bool { return r.bases[i] > r.next })
		if i == len(r.bases) {
			return nil, io.EOF
		}
		if err := r.release(); err != nil {
			return nil, err
		}
		r.next = r.bases[i]
	}
	gap.To = r.next - 1
	return gap, nil
}

// damage is an error for the place where reading stopped.
func (r *Reader) damage(what string) error {
	return &CorruptError{segmentName(r.base), r.sc.off + r.sc.bad, what}
}

// End says whether io.EOF was the end of the log, for a reader from outside: nil if it was, or if
// more has come meanwhile: Next tells; a [*CorruptError] if there was more once that cannot be
// read. Of a batch that is cut off, Next then returns the records that are whole and had been
// durable, for the next opening keeps them. It reads what is left of the last segment, but no place
// twice.
func (r *Reader) End() error {
	if err := r.unusable(); err != nil {
		return err
	}
	if r.live != nil { // Next knows by itself
		return nil
	}
	found, err := findTraces(r.dir, nil)
	if err != nil {
		return err
	}
	last, more := found.end(r.known)
	if len(found.bases) == 0 && (last > 0 || more) {
		return &CorruptError{segmentName(found.first(r.known)), 0, "every segment is gone"}
	}
	if r.sc == nil || r.ended == r.sc.off {
		return nil
	}
	size, err := r.file.Size()
	if err != nil {
		return err
	}
	durable, _, err := r.sc.laterDurable(size)
	if err != nil {
		return err
	}
	b, err := r.sc.batch()
	if err == nil {
		r.queue = b.frames
		return nil
	}
	now, err := segmentBases(r.dir)
	if err != nil || !slices.Equal(now, found.bases) {
		return err
	}
	switch {
	case durable >= r.sc.next:
		if passed, err := r.pass(r.next); passed || err != nil {
			return err
		}
		return r.damage(fmt.Sprintf("record %d and what follows was durable and cannot be read", r.sc.next))
	case last >= r.sc.next || more:
		part := wholeOf(b.frames, r.sc.next, last)
		next := r.sc.next + uint64(len(part))
		if len(part) > 0 && r.next < next {
			r.queue = part
			return nil
		}
		if last >= next || more {
			return r.damage(fmt.Sprintf("record %d and what follows is gone", next))
		}
	}
	r.ended = r.sc.off
	return nil
}

func (r *Reader) nextBatch() bool {
	b, err := r.sc.batch()
	if err == nil {
		r.queue = b.frames
	}
	return err == nil
}

func (r *Reader) reopen() error {
	if err := r.release(); err != nil {
		return err
	}
	return r.openAt()
}

// list looks which segments there are.
func (r *Reader) list() (err error) {
	r.bases, err = segmentBases(r.dir)
	return err
}

// openAt opens the segment that holds the record r.next, at a batch not far before it. The list of
// segments is made again only where it does not reach far enough, or names what is not there any
// more.
func (r *Reader) openAt() error {
	if len(r.bases) == 0 {
		if err := r.list(); err != nil {
			return err
		}
	}
	bases := r.bases
	if len(bases) == 0 {
		return io.EOF
	}
	i := sort.Search(len(bases), func(i int) bool { return bases[i] > r.next }) - 1
	if i < 0 {
		from := r.next
		if from > 1 { // else the oldest was asked for: nothing is missing of that
			return r.before(from)
		}
		r.next, i = bases[0], 0
	}
	f, size, err := openSegment(r.dir, bases[i])
	if errors.Is(err, fs.ErrNotExist) { // removed since the listing
		if listErr := r.list(); listErr != nil {
			return listErr
		}
		if _, there := slices.BinarySearch(r.bases, bases[i]); !there {
			return nil
		}
	}
	if err != nil {
		return err
	}
	// A segment that was listed before another was complete then: its file does not grow.
	if err := r.begin(f, bases[i], size, i < len(bases)-1); err != nil {
		return errors.Join(err, f.Close())
	}
	if r.next > bases[i] {
		if x, err := r.index(bases[i]); err == nil {
			if e, ok := x.bySequence(r.next); ok {
				r.sc.seek(e.off, e.first)
			}
		}
	}
	return nil
}

// begin makes the reader go on in a segment. whole says that its file does not grow.
func (r *Reader) begin(f File, base uint64, size int64, whole bool) error {
	var sc *scanner
	var err error
	if whole && r.next <= base {
		sc, err = beginScan(f, base, size, r.room)
	} else if sc, err = newScanner(f, base); err == nil {
		sc.reuse(r.room)
	}
	if err != nil {
		return err
	}
	if none := [16]byte{}; sc.log != none {
		if r.log != none && sc.log != r.log {
			return head{header: sc.header, name: base}.foreignTo(r.log)
		}
		r.log = sc.log
	}
	sc.size, sc.whole = size, whole
	r.base, r.file, r.sc = base, f, sc
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

// SeekTime makes the next record the first one not earlier than t, in ns since 1970, that the log
// holds.
func (r *Reader) SeekTime(t int64) error {
	if err := cmp.Or(r.unusable(), r.release()); err != nil {
		return err
	}
	if err := r.list(); err != nil {
		return err
	}
	bases := r.bases
	var sealed []sealedSegment // what the log has in memory, so that no file need be opened
	if r.live != nil {
		sealed = r.live.shelf.sealed()
	}
	// Not by halves: after a clock has stepped back, later segments have lower times.
	for i, base := range bases {
		at, known := slices.BinarySearchFunc(sealed, base,
			func(s sealedSegment, base uint64) int { return cmp.Compare(s.base, base) })
		if known && i < len(bases)-1 && sealed[at].last+1 == bases[i+1] && sealed[at].time < t {
			continue
		}
		x, err := r.index(base)
		if errors.Is(err, fs.ErrNotExist) && i < len(bases)-1 { // removed since the listing
			continue
		}
		if err != nil {
			return err
		}
		// One whose records could not all be looked at is not passed over: reading it says why.
		whole := i < len(bases)-1 && x.last+1 == bases[i+1]
		if whole && x.maxTime() < t {
			continue
		}
		r.next, r.since, r.seeks = base, t, true
		if e, ok := x.byTime(t); ok {
			r.next = e.first
		}
		break
	}
	return nil
}
