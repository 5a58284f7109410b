package seglog

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"sort"
)

// Reverse reads records from the newest to the oldest. As a Reader it belongs to one goroutine at a
// time, sees only what is committed, and may read while the log is written.
//
// Segments are made to be read forward. So it reads a stretch of one forward, from an entry of its
// index up to where it is, keeps that, and hands it out from its end. A stretch has 256 KiB and a
// batch at most.
type Reverse struct {
	r      *Reader // reads the stretches
	before uint64  // records from here on have been handed out, or are in held; 0: none has been looked for
	held   []heldRecord
	data   []byte // of what is held
	damage error  // what stands before that; nil: nothing that is known

	base  uint64 // of the segment that is read
	index *index // … and its index
}

// heldRecord is a record of a stretch, whose data is at at, or a gap.
type heldRecord struct {
	Record
	at, size int
	gap      *GapError
}

// NewReverse reads the directory down from the record before that one (0: from the newest).
func NewReverse(dir FS, before uint64) *Reverse {
	return &Reverse{r: NewReader(dir, 0), before: before}
}

// NewReverse reads the log down from the record before that one (0: from the newest).
func (l *Log) NewReverse(before uint64) *Reverse {
	return &Reverse{r: l.NewReader(0), before: before}
}

// Close ends the reading: what follows is [os.ErrClosed].
func (r *Reverse) Close() error {
	r.held, r.index = nil, nil
	return r.r.Close()
}

// End is nil: where Next ends, the log begins.
func (r *Reverse) End() error { return nil }

// Next returns the record before the last one, whose sequence may be some lower where there are
// notes between; io.EOF where the log begins; a [*GapError] where records are gone between two that
// are there, and a [*CorruptError] where they cannot be read: that one is final.
func (r *Reverse) Next() (Record, error) {
	if err := r.r.unusable(); err != nil {
		return Record{}, err
	}
	for len(r.held) == 0 {
		if r.damage != nil {
			return Record{}, r.damage
		}
		if err := r.load(); err != nil {
			return Record{}, err
		}
	}
	n := len(r.held) - 1
	h := r.held[n]
	r.held = r.held[:n]
	if h.gap != nil {
		return Record{}, h.gap
	}
	h.Data = r.data[h.at:][:h.size]
	return h.Record, nil
}

// load reads the stretch before r.before.
func (r *Reverse) load() error {
	first, last, err := r.stretch()
	if err != nil {
		return err
	}
	if err := r.r.release(); err != nil {
		return err
	}
	r.r.next = first
	held, data := r.held[:0], r.data[:0]
	var damage error
	for r.r.next <= last {
		rec, err := r.r.Next()
		if err == io.EOF { // of a log that is read from outside; is it the end?
			if err = r.r.End(); err == nil {
				rec, err = r.r.Next()
			}
		}
		var gap *GapError
		var corrupt *CorruptError
		switch {
		case errors.As(err, &corrupt):
			passed, passErr := r.r.pass(last)
			if err := cmp.Or(passErr, err); !passed {
				return err
			}
			held, data, damage = held[:0], data[:0], err // the walk ends there
			continue
		case errors.As(err, &gap):
			held = append(held, heldRecord{gap: &GapError{gap.From, min(gap.To, last), gap.Cause}})
			continue
		case err == io.EOF: // the log ends here
		case err != nil:
			return err
		case rec.Seq <= last:
			held = append(held, heldRecord{Record: rec, at: len(data), size: len(rec.Data)})
			data = append(data, rec.Data...)
			continue
		}
		break
	}
	r.held, r.data, r.before, r.damage = held, data, first, damage
	return nil
}

// stretch is the next one to read: of which records. io.EOF: there is none.
func (r *Reverse) stretch() (first, last uint64, err error) {
	if r.before == 0 || r.r.live != nil {
		end, err := r.end()
		if err != nil {
			return 0, 0, err
		}
		if r.before == 0 || r.before > end {
			r.before = end + 1
		}
	}
	last = r.before - 1
	listed := r.index == nil
	if listed { // once: what comes later is behind, and what goes says so when it is opened
		if err := r.r.list(); err != nil {
			return 0, 0, err
		}
	}
	bases := r.r.bases
	i := sort.Search(len(bases), func(i int) bool { return bases[i] > last }) - 1
	if i < 0 || last == 0 {
		return 0, 0, io.EOF
	}
	if r.index == nil || r.base != bases[i] {
		x, err := r.r.index(bases[i])
		switch {
		case errors.Is(err, fs.ErrNotExist) && !listed: // since the listing
			r.index = nil
			return r.stretch()
		case errors.Is(err, fs.ErrNotExist): // retention is taking it, and what is before it
			err = io.EOF
		}
		if err != nil {
			return 0, 0, err
		}
		r.base, r.index = bases[i], x
	}
	if e, ok := r.index.bySequence(last); ok {
		return max(e.first, bases[i]), last, nil
	}
	return bases[i], last, nil
}

// end is the last record that there is.
func (r *Reverse) end() (uint64, error) {
	if l := r.r.live; l != nil {
		return l.visible(), nil
	}
	return LastSequence(r.r.dir)
}
