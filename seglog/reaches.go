package seglog

import "io"

// findEnd looks, while the file of a segment is open, whether its end is where its index says:
// zeros at the last entry tell of a file that was cut, and has its length again. Zeros that begin
// behind that are found as all other damage is.
func (h *head) findEnd(dir FS, f File) {
	x, salt, err := readIndex(dir, h.name)
	if err != nil || x == nil || salt != h.salt {
		return
	}
	h.index = x
	if n := len(x.entries); n > 0 {
		h.zeros = isZero(f, x.entries[n-1].off)
	}
}

// isZero reports whether zeros stand where a batch began. What cannot be read is none.
func isZero(f io.ReaderAt, off int64) bool {
	var first [frameHeader]byte
	n, _ := f.ReadAt(first[:], off)
	return n == len(first) && first == [frameHeader]byte{}
}

// reaches puts the last record of an index right where the segment has been cut before it, also
// where zeros stand behind the cut.
func (l *Log) reaches(base uint64, x *index) error {
	f, size, err := openSegment(l.cfg.FS, base)
	if err != nil {
		return err
	}
	defer f.Close()
	sc, err := newScanner(f, base)
	if err != nil {
		return err
	}
	last := base - 1
	if e, ok := x.before(func(e indexEntry) bool { return e.off >= size || isZero(f, e.off) }); ok {
		sc.seek(e.off, e.first)
		last = e.first - 1
	}
	for {
		b, err := sc.batch()
		if err != nil {
			break
		}
		if len(b.frames) > 0 {
			last = b.last
		}
	}
	x.last = min(x.last, last)
	return sc.readErr
}
