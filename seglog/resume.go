package seglog

import "cmp"

// resumption looks for the place where reading goes on behind damage. Batches begin behind commit
// frames, of which a disk may have written one in the place of another: who went on behind the
// first one would pass over all that is whole up to the record that it names. So reading goes on
// with the lowest record. Of several places for the same one it is the first behind which that
// record stands. Where the commit frame before a batch is gone, its own says how long it is.
type resumption struct {
	sc    *scanner
	from  int64  // where the search begins: what is before it is no place
	at    int64  // behind the last commit frame; 0: no frame can follow there
	then  uint64 // … the record that should follow
	begun int64  // where the last frame stood that stands directly behind a commit frame

	off  int64 // where reading goes on, as far as is known; 0: nowhere
	next uint64
	fits bool // … and that record stands there
	any  bool // … or at a place before it
	err  error
}

// frame takes the whole frames from the damage on, in the order of the file.
func (r *resumption) frame(at int64, f rawFrame) {
	first := firstOf(f)
	if f.kind == kindCommit {
		first++
	}
	switch {
	case r.at == 0 || at != r.at:
		r.unfit()
	case first == r.then:
		r.take(r.at, first, true)
	case r.isBatch(first): // behind the commit frame of another one
		r.take(r.at, first, true)
	default:
		r.unfit()
	}
	if at == r.at {
		r.begun = at
	}
	if r.at = 0; f.kind == kindCommit {
		if begin := at - commitBatchBytes(f); begin != r.begun {
			r.uncommitted(begin, at)
		}
		r.at, r.then = at+int64(f.size), f.seq+1
	}
}

// uncommitted takes the place begin, where no commit frame ends, if a whole batch stands there
// whose own one stands at end.
func (r *resumption) uncommitted(begin, end int64) {
	if begin < r.from || begin >= end || begin%alignment != 0 {
		return
	}
	sc := &scanner{f: r.sc.f, header: r.sc.header, off: begin}
	b, err := sc.batch()
	r.err = cmp.Or(r.err, sc.readErr)
	if err == nil && sc.off-int64(len(b.commit)) == end {
		r.take(begin, firstOf(b.frames[0]), true)
	}
}

// firstOf is the first record that a frame is, or stands for.
func firstOf(f rawFrame) uint64 {
	if f.kind == kindHole {
		return min(holeFrom(f), f.seq)
	}
	return f.seq
}

// unfit takes the place behind the last commit frame, where the record that should follow is not.
// A place that fits, and stands before it, is better.
func (r *resumption) unfit() {
	if !r.any {
		r.take(r.at, r.then, false)
	}
}

func (r *resumption) take(at int64, next uint64, fits bool) {
	if at == 0 || next < r.sc.next || at == r.sc.off && next == r.sc.next { // there reading has stopped
		return
	}
	if r.off == 0 || next < r.next || next == r.next && fits && !r.fits {
		r.off, r.next, r.fits = at, next, fits
	}
	r.any = r.any || fits
}

// isBatch reports whether a whole batch that begins with that record stands behind the last commit
// frame.
func (r *resumption) isBatch(first uint64) bool {
	sc := &scanner{f: r.sc.f, header: r.sc.header, off: r.at, next: first}
	_, err := sc.batch()
	r.err = sc.readErr
	return err == nil
}
