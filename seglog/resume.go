package seglog

// resumption looks for the place where reading goes on behind damage. Batches begin behind commit
// frames, of which a disk may have written one in the place of another: who went on behind the
// first one would pass over all that is whole up to the record that it names. So reading goes on
// with the lowest record. Of several places for the same one it is the first behind which that
// record stands.
type resumption struct {
	sc   *scanner
	at   int64  // behind the last commit frame; 0: no frame can follow there
	then uint64 // … the record that should follow

	off  int64 // where reading goes on, as far as is known; 0: nowhere
	next uint64
	fits bool // … and that record stands there
	any  bool // … or at a place before it
	err  error
}

// frame takes the whole frames from the damage on, in the order of the file.
func (r *resumption) frame(at int64, f rawFrame) {
	first := f.seq
	switch f.kind {
	case kindHole:
		first = min(holeFrom(f), f.seq)
	case kindCommit:
		first++
	}
	switch {
	case r.at == 0 || at != r.at:
		r.unfit()
	case first == r.then:
		r.take(first, true)
	case r.isBatch(first): // behind the commit frame of another one
		r.take(first, true)
	default:
		r.unfit()
	}
	if r.at = 0; f.kind == kindCommit {
		r.at, r.then = at+int64(f.size), f.seq+1
	}
}

// unfit takes the place behind the last commit frame, where the record that should follow is not.
// A place that fits, and stands before it, is better.
func (r *resumption) unfit() {
	if !r.any {
		r.take(r.then, false)
	}
}

func (r *resumption) take(next uint64, fits bool) {
	if r.at == 0 || next < r.sc.next || r.at == r.sc.off && next == r.sc.next { // there reading has stopped
		return
	}
	if r.off == 0 || next < r.next || next == r.next && fits && !r.fits {
		r.off, r.next, r.fits = r.at, next, fits
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
