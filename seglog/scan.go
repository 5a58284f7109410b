package seglog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
)

// scanner reads one segment batch by batch, from any batch on.
type scanner struct {
	f io.ReaderAt
	header
	harm int64 // where the first block is not as it was written; -1: nowhere
	size int64 // of the file, when scanning began; 0: not known
	// whole says that the file has not grown since, nor will it: no read is needed to see its end.
	whole  bool
	salted [4]byte // the salt, as it stands in the first block
	off    int64   // of the next batch
	next   uint64  // sequence that its first record should have; 0 if that is not known

	buffers
	buf     []byte // a part of room
	have    int    // buf[:have] is the file from off on
	bad     int64  // errEnd: where, behind off, reading stopped making sense
	readErr error
}

// buffers are the memory of a scanner. Who reads segment after segment hands them on: segments may
// be small, and many.
type buffers struct {
	room   []byte     // for what is read
	frames []rawFrame // of a batch
	window []byte     // of a search
}

// errEnd: no whole batch follows.
var errEnd = errors.New("no committed batch follows")

// batch is one committed batch; its frames are views.
type batch struct {
	off         int64 // where it begins
	first, last uint64
	time        int64 // the highest of its records
	records     int
	frames      []rawFrame // records, other entries, and holes
	durable     uint64
	commit      []byte // its commit frame
}

// newScanner reads the header of a segment.
func newScanner(f io.ReaderAt, base uint64) (*scanner, error) {
	s, err := startScanner(f, base, headerBytes, buffers{room: make([]byte, headerBytes)})
	if err == nil {
		s.buffers, s.buf = buffers{}, nil
	}
	return s, err
}

// beginScan is newScanner for who goes on to read all of a segment whose file has that size: it
// reads its first part by the same call, into buffers that nobody uses any more.
func beginScan(f io.ReaderAt, base uint64, size int64, b buffers) (*scanner, error) {
	if len(b.room) < scanBytes {
		b.room = make([]byte, scanBytes)
	}
	s, err := startScanner(f, base, int(max(headerBytes, min(size, int64(len(b.room))))), b)
	if err == nil {
		s.size = size
	}
	return s, err
}

// startScanner reads that many bytes, of which the first are the header.
func startScanner(f io.ReaderAt, base uint64, want int, room buffers) (*scanner, error) {
	b := room.room
	n, err := f.ReadAt(b[:want], 0)
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("read header of %s: %w", segmentName(base), err)
	}
	if n < headerBytes {
		return nil, &CorruptError{segmentName(base), int64(n), "its header is cut off"}
	}
	h, harm := decodeHeader(b)
	if harm == nil && h.base != base {
		harm = fmt.Errorf("header says it begins with record %d", h.base)
	}
	if harm != nil {
		if h, err = decodeHeader(b[headerCopy:]); errors.Is(cmp.Or(err, harm), ErrVersion) {
			return nil, fmt.Errorf("%s: %w", segmentName(base), cmp.Or(err, harm))
		} else if err != nil || h.base != base {
			return nil, &CorruptError{segmentName(base), 0, harm.Error()}
		}
	}
	return &scanner{
		f: f, header: h, harm: h.harm(b), off: headerBytes, next: base, salted: [4]byte(b[saltAt:]),
		buffers: room, buf: b[headerBytes:], have: n - headerBytes,
	}, nil
}

// isSame reports whether the file still is of the segment that was begun with: a log gives files of
// segments that it has removed to new ones, which have another salt.
func (s *scanner) isSame() bool {
	var now [4]byte
	_, err := s.f.ReadAt(now[:], saltAt)
	return err == nil && now == s.salted
}

// seek goes to a batch that is known to begin at off with the record next.
func (s *scanner) seek(off int64, next uint64) { s.off, s.next, s.have = off, next, 0 }

const scanBytes = 256 << 10 // what a scanner reads at once, at least

// reuse takes over buffers, maybe its own. No view of them may be in use.
func (s *scanner) reuse(b buffers) {
	copy(b.room, s.buf[:s.have])
	s.buffers, s.buf = b, b.room
}

// fill makes at least n bytes from off on available, as far as the file goes.
func (s *scanner) fill(n int) bool {
	if s.have >= n {
		return true
	}
	if len(s.buf) < n { // in the middle of a batch: its frames are views of the buffer, which stays as it is
		grown := make([]byte, max(n, 2*len(s.buf), scanBytes))
		copy(grown, s.buf[:s.have])
		s.room, s.buf = grown, grown
	}
	at := s.off + int64(s.have)
	if s.whole && at >= s.size {
		return false
	}
	want := s.buf[s.have:]
	// else it would be asked once more whether there is an end
	if rest := s.size - at; int64(n-s.have) <= rest && rest < int64(len(want)) {
		want = want[:rest]
	}
	got, err := s.f.ReadAt(want, at)
	s.have += got
	if err != nil && err != io.EOF {
		s.readErr = err
	}
	return s.have >= n
}

// batch reads the next committed batch. errEnd may be an end for now: call again when more was
// committed.
func (s *scanner) batch() (batch, error) {
	b := batch{off: s.off}
	at, next, digest := 0, s.next, uint64(0)
	s.bad, s.readErr = 0, nil // a disk that did not answer once may do so now
	if short := max(scanBytes/4, len(s.room)/2); len(s.buf) < short && len(s.room) > 0 {
		s.reuse(s.buffers)
	}
	b.frames = s.frames[:0]
	for {
		if !s.fill(at+frameHeader) || !s.fill(at+max(frameHeader, frameWants(s.buf[at:s.have]))) {
			return b, s.end(at)
		}
		f, ok := decodeFrame(s.buf[at:s.have], s.salt)
		if !ok {
			return b, s.end(at)
		}
		switch {
		case f.kind == kindCommit:
			if next > 0 && f.seq != next-1 {
				return b, s.end(at)
			}
			if !closes(f, s.version, digest) { // any of its frames may be the wrong one
				return b, s.end(0)
			}
			b.durable, b.commit = commitDurable(f), s.buf[at:at+f.size]
			if n := len(b.frames); n > 0 {
				b.first, b.last, b.time = b.frames[0].seq, b.frames[n-1].seq, f.time
				if s.version < 2 {
					b.time = maxTime(b.frames)
				}
			}
			s.frames = b.frames
			size := at + f.size
			s.off += int64(size)
			// What is behind stays in the buffer; the frames handed out are views of what is
			// before.
			s.have -= size
			s.buf = s.buf[size:]
			s.next = f.seq + 1
			return b, nil
		case f.kind == kindHole:
			next = f.seq + 1
		default:
			if next > 0 && f.seq != next {
				return b, s.end(at)
			}
			next = f.seq + 1
			b.records++
		}
		b.frames = append(b.frames, f)
		at, digest = at+f.size, fold(digest, f.crc)
	}
}

// maxTime is the highest time of frames, of which there is one at least. The commit frame of
// version 1 may have the last one's.
func maxTime(frames []rawFrame) int64 {
	t := frames[0].time
	for _, f := range frames[1:] {
		t = max(t, f.time)
	}
	return t
}

// end says where reading stopped and forgets what was read, so that the next try sees the file
// anew.
func (s *scanner) end(at int) error {
	s.bad, s.have = int64(at), 0
	return errEnd
}

// laterDurable searches behind the last whole batch for whole frames, reports whether there are
// any, and returns the highest sequence that one of them knew to be durable.
func (s *scanner) laterDurable(size int64) (durable uint64, any bool, err error) {
	err = s.search(s.off, size, func(_ int64, f rawFrame) bool {
		any = true
		if f.kind == kindCommit {
			durable = max(durable, commitDurable(f))
		}
		return true
	})
	return durable, any, err
}

// durableIn is the highest sequence that a segment knows to be durable, by its header and by its
// commit frames: under SyncNever the mark of a clean end is the first to know anything.
func durableIn(dir FS, h head) (uint64, error) {
	f, size, err := openSegment(dir, h.name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	sc, err := beginScan(f, h.name, size, buffers{})
	if err != nil {
		return 0, err
	}
	durable := sc.durable
	for {
		b, err := sc.batch()
		if err != nil {
			break
		}
		durable = max(durable, b.durable)
	}
	if sc.readErr != nil {
		return 0, fmt.Errorf("read %s: %w", segmentName(h.name), sc.readErr)
	}
	later, _, err := sc.laterDurable(size)
	return max(durable, later), err
}

// behind is where the next batch begins behind what is not whole, and with which record. off is 0
// if there is none. See [resumption].
func (s *scanner) behind(size int64) (off int64, next uint64, err error) {
	r := resumption{sc: s, from: s.off + s.bad}
	if s.bad == 0 { // a batch of others may stand there
		r.at, r.then = s.off, s.next
	}
	err = s.search(r.from, size, func(at int64, f rawFrame) bool {
		r.frame(at, f)
		return r.err == nil
	})
	r.unfit()
	return r.off, r.next, cmp.Or(err, r.err)
}

// isCut reports whether the batch where reading stopped has no end: one whose end is still there is
// damaged.
func (s *scanner) isCut(size int64) (bool, error) {
	off, _, err := s.behind(size)
	return off == 0, err
}

// isTornHole reports whether the batch where reading stopped is one that an opening wrote for what
// was gone (see segment.complete), as a power cut may leave it: its end is there, and a hole in it
// is not. It has no record but those that still stand there, and nothing was written behind it.
func (s *scanner) isTornHole(size int64) (bool, error) {
	at, next, records := s.off, s.next, uint64(0)
	ends, holes := 0, false
	err := s.search(s.off, size, func(off int64, f rawFrame) bool {
		switch {
		case f.kind == kindCommit:
			room := off - at // for the holes
			ends++
			holes = commitBatchBytes(f) == off-s.off && commitRecords(f) == records && room > 0 && room <= 2*holeBytes
		case ends == 0 && f.counts() && off == at && (next == 0 || f.seq == next):
			at, next, records = off+int64(f.size), f.seq+1, records+1
		}
		return ends < 2
	})
	return ends == 1 && holes, err
}

// search calls found for every whole frame of this segment that begins in [off, size), until it
// returns false.
func (s *scanner) search(off, size int64, found func(off int64, f rawFrame) bool) error {
	w := window{f: s.f, size: size, buf: s.window[:0]}
	defer func() { s.window = w.buf }()
	for off+frameHeader <= size {
		b, err := w.at(off, frameHeader)
		if err != nil {
			return err
		}
		need := frameWants(b)
		if need == 0 || off+int64(need) > size {
			off += alignment
			continue
		}
		if b, err = w.at(off, need); err != nil {
			return err
		}
		f, ok := decodeFrame(b, s.salt)
		if !ok || f.seq+1 < s.base {
			off += alignment
			continue
		}
		if !found(off, f) {
			return nil
		}
		off += int64(f.size)
	}
	return nil
}

// window reads a file in large steps and shows small parts of it.
type window struct {
	f     io.ReaderAt
	size  int64 // of the file
	start int64
	buf   []byte
}

const windowStep = 1 << 20

// at shows n bytes from off on, fewer (but filled up with zeros) where the file ends before.
func (w *window) at(off int64, n int) ([]byte, error) {
	if off >= w.start && off+int64(n) <= w.start+int64(len(w.buf)) {
		return w.buf[off-w.start:][:n], nil
	}
	want := max(n, int(min(windowStep, w.size-off)))
	w.start, w.buf = off, slices.Grow(w.buf[:0], want)[:want]
	got, err := w.f.ReadAt(w.buf, off)
	clear(w.buf[got:])
	if err == io.EOF {
		err = nil
	}
	return w.buf[:n], err
}

// isEmpty reports whether no batch is in a segment.
func isEmpty(dir FS, base uint64) (bool, error) {
	f, _, err := openSegment(dir, base)
	if err != nil {
		return false, err
	}
	defer f.Close()
	sc, err := newScanner(f, base)
	if err != nil {
		return false, err
	}
	_, err = sc.batch()
	return err == errEnd, sc.readErr
}
