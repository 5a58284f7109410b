package seglog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"
)

// Checked is what a look at a segment in the background has found.
type Checked struct {
	Base     uint64 // sequence of its first record
	Problems []Problem
	Bytes    int64 // that were read
	Last     bool  // with it all segments have been looked at
}

const (
	scrubRate   = 256 << 10        // bytes read in a second, unless the log is so large that Config.Scrub asks for more
	suspectRate = 32 << 20         // … of a segment that is suspect
	scrubAtOnce = 16 << 20         // bytes that a pass reads first, without a pause
	scrubTries  = 6                // of reading a segment that the disk does not give back …
	scrubPause  = 10 * time.Second // … and the time between them
)

// scrub reads what is stored, slowly, and tells what is damaged. A pass begins at any segment, so
// that a log which is often opened is read to its end, too. Segments that somebody seems to have
// written to, and those of Config.Suspect, come first, and at once: a pass rests for them. It
// returns when the log is closed.
func (l *Log) scrub() {
	defer l.done.Done()
	for _, base := range l.cfg.Suspect {
		l.suspect(base)
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	if l.cfg.Scrub <= 0 {
		timer.Stop()
	}
	for {
		select {
		case <-l.quit:
			return
		case <-l.doubts:
			l.lookAtSuspects()
		case <-timer.C:
			begun := time.Now()
			l.scrubAll()
			timer.Reset(max(time.Second, l.cfg.Scrub-time.Since(begun)))
		}
	}
}

// suspect has a segment looked at soon.
func (l *Log) suspect(base uint64) {
	l.mu.Lock()
	if !slices.Contains(l.suspects, base) {
		l.suspects = append(l.suspects, base)
	}
	l.mu.Unlock()
	signal(l.doubts)
}

func (l *Log) lookAtSuspects() {
	for {
		l.mu.Lock()
		if len(l.suspects) == 0 {
			l.mu.Unlock()
			return
		}
		base := l.suspects[0]
		l.suspects = l.suspects[1:]
		l.mu.Unlock()
		s, dir := &Summary{}, l.paced(suspectRate, nil)
		if prev := l.before(base); prev > 0 && !l.look(s, dir, prev, false) { // for its hash
			return
		}
		if !l.look(s, dir, base, false) {
			return
		}
	}
}

// before is the first sequence of the segment before one; 0 if there is none.
func (l *Log) before(base uint64) (prev uint64) {
	for _, s := range l.shelf.sealed() {
		if s.base < base {
			prev = s.base
		}
	}
	return prev
}

// scrubAll is one pass.
func (l *Log) scrubAll() {
	var bases []uint64
	var bytes int64
	for _, s := range l.shelf.sealed() {
		bases, bytes = append(bases, s.base), bytes+s.bytes
	}
	l.mu.Lock()
	live, liveBytes := l.seg.base, l.end
	l.mu.Unlock()
	bases, bytes = append(bases, live), bytes+liveBytes
	dir := l.paced(max(scrubRate, float64(bytes)/l.cfg.Scrub.Seconds()), l.doubts)
	s, from := &Summary{}, rand.IntN(len(bases))
	for i := range bases {
		at := (from + i) % len(bases)
		if at == 0 { // what is before it is behind it
			s = &Summary{}
		}
		if !l.look(s, dir, bases[at], i == len(bases)-1) {
			return
		}
	}
}

// look reads one segment and tells what it has found; false: the log is closed. What cannot be read
// for want of something else than the disk is left to the next pass.
func (l *Log) look(s *Summary, dir *paced, base uint64, last bool) (goOn bool) {
	counted := &counting{FS: dir}
	for tries := 1; ; tries++ {
		s.Problems = nil
		err := l.check(s, counted, base)
		if err == nil {
			break
		}
		if tries == scrubTries && !passes(err) && !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) {
			_, last, _ := l.span(base)
			s.unanswered(err, last)
			break
		}
		if !dir.rest(scrubPause) {
			return false
		}
		if tries == scrubTries {
			return true
		}
		*s = Summary{newest: s.newest, off: s.off, next: s.next}
	}
	if !l.holds(base) { // retention took it meanwhile
		s.Problems = nil
	}
	select {
	case <-l.quit:
		return false
	default:
	}
	if l.cfg.OnChecked != nil {
		l.cfg.OnChecked(Checked{Base: base, Problems: slices.Clone(s.Problems), Bytes: counted.n, Last: last})
	}
	return true
}

// check reads a segment. What Recovery has told of is no news.
func (l *Log) check(s *Summary, dir *counting, base uint64) error {
	next, last, end := l.span(base)
	dir.end = end
	err := s.segment(dir, base, next)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.Problems = append(s.Problems,
			Problem{Segment: segmentName(base), What: "the segment is gone", From: base, To: max(base, last)})
	case err != nil:
		return err
	case s.blind:
		p := &s.Problems[len(s.Problems)-1]
		p.From, p.To, s.blind = base, max(base, last), false
	// it is the last one, and nothing follows
	case s.next <= last && !slices.ContainsFunc(s.Problems, func(p Problem) bool { return p.To >= s.next }):
		s.Problems = append(s.Problems,
			Problem{Segment: segmentName(base), Offset: s.off, What: "what followed is gone", From: s.next, To: last})
	}
	s.Problems = slices.DeleteFunc(s.Problems, func(p Problem) bool { return p.Harmless || l.isKnown(p) })
	return nil
}

// behind is the first sequence of the segment behind one; 0 if that is the last. The live segment
// is looked at first: those before it are on the shelf by then. The other way round one that is
// sealed between the two looks would be in neither, and what it holds would seem to be gone.
func (l *Log) behind(base uint64) uint64 {
	l.mu.Lock()
	live := l.seg.base
	l.mu.Unlock()
	for _, s := range l.shelf.sealed() {
		if s.base > base {
			return s.base
		}
	}
	if live > base {
		return live
	}
	return 0
}

// span is the last record that a segment should hold by now, with the first of the one behind it.
// Of the one that is written to next is 0, and end is where what is written ends.
func (l *Log) span(base uint64) (next, last uint64, end int64) {
	l.mu.Lock()
	live, stored, written := l.seg.base, l.stored, l.end
	l.mu.Unlock()
	if live == base {
		return 0, stored, written
	}
	next = l.behind(base)
	return next, next - 1, 0
}

// holds reports whether a segment is a part of the log.
func (l *Log) holds(base uint64) bool {
	l.mu.Lock()
	live := l.seg.base == base && !l.seg.absent
	l.mu.Unlock()
	return live || slices.ContainsFunc(l.shelf.sealed(), func(s sealedSegment) bool { return s.base == base })
}

// isKnown reports whether Recovery has told of all that a problem names.
func (l *Log) isKnown(p Problem) bool {
	return p.To > 0 && slices.ContainsFunc(l.recovered.Missing,
		func(m Missing) bool { return m.From <= p.From && p.To <= m.To })
}

// unanswered reports a segment that the disk does not give back, of which last is the last record.
func (s *Summary) unanswered(err error, last uint64) {
	s.prior = prior{}
	s.Problems = append(s.Problems, Problem{
		Segment: s.newest, Offset: s.off, What: fmt.Sprintf("it cannot be read: %v", err), From: s.next,
		To: max(s.next, last), AtMost: true,
	})
}

// intact looks whether the segment that is written to still is what was written, with the commit
// frame that was the last one at the look before. An error says what is not.
func (l *Log) intact(before *tail) (s *segment, err error) {
	l.mu.Lock()
	s, end, now := l.seg, l.end, l.tail
	l.mu.Unlock()
	if err = s.intact(end, *before); err == nil {
		*before = now
	}
	return s, err
}

// intact looks whether the file of a segment that is written up to end is as long as it should be,
// with its header and that commit frame, if that is its own. It is one system call for each. What
// cannot be told at this moment is taken for good.
func (s *segment) intact(end int64, was tail) error {
	if s.absent {
		return nil
	}
	least := s.size
	if s.grows {
		least = end
	}
	if size, err := s.file.Size(); err == nil && size < least {
		return fmt.Errorf("%s was cut: it has %d bytes of %d", s.name(), size, least)
	}
	image := s.image()
	got := make([]byte, len(image))
	if n, _ := s.file.ReadAt(got, 0); n == len(got) && !bytes.Equal(got, image) {
		return fmt.Errorf("the header of %s was written over", s.name())
	}
	if was.base == s.base {
		n, _ := s.file.ReadAt(got[:commitBytes], was.off)
		if n == commitBytes && !bytes.Equal(got[:n], was.commit[:]) {
			return fmt.Errorf("%s was written over at %d", s.name(), was.off)
		}
	}
	return nil
}

// spoil has a segment that somebody else wrote to looked at, and the next batch written to another
// one: what comes is safe there. One without records has nothing that could be lost but its place:
// then the log fails, as when it is taken away.
func (l *Log) spoil(s *segment, why error) {
	l.mu.Lock()
	current, empty, known := l.seg == s, l.stored < s.base, l.isSpoiled(s)
	if current && !empty {
		l.spoiled.Store(s.base)
	}
	l.mu.Unlock()
	switch {
	case !current || known: // sealed meanwhile: the next pass looks at it
	case empty:
		l.fail(fmt.Errorf("%w: %w", ErrFailed, why))
	default:
		l.suspect(s.base)
	}
}

func (l *Log) isSpoiled(s *segment) bool { return l.spoiled.Load() == s.base }

// tail is the last commit frame of a segment.
type tail struct {
	base   uint64 // of the segment; 0: none was written
	off    int64
	commit [commitBytes]byte
}

// paced is a directory that is read slowly.
type paced struct {
	FS
	log    *Log
	doubts <-chan struct{} // for which whoever reads it rests; nil: for none
	rate   float64         // bytes in a second
	free   time.Time       // when the next read may be
}

func (l *Log) paced(rate float64, doubts <-chan struct{}) *paced {
	ahead := time.Duration(scrubAtOnce / rate * float64(time.Second))
	return &paced{FS: l.cfg.FS, log: l, doubts: doubts, rate: rate, free: time.Now().Add(-ahead)}
}

// rest waits, and sees to suspects meanwhile; false: the log is closed.
func (p *paced) rest(d time.Duration) (goOn bool) {
	over := time.After(d)
	for {
		select {
		case <-p.log.quit:
			return false
		case <-p.doubts:
			p.log.lookAtSuspects()
		case <-over:
			return true
		}
	}
}

// Open implements FS.
func (p *paced) Open(name string) (File, error) {
	f, err := p.FS.Open(name)
	return pacedFile{f, p}, err
}

type pacedFile struct {
	File
	p *paced
}

// ReadAt implements io.ReaderAt.
func (f pacedFile) ReadAt(b []byte, off int64) (int, error) {
	p := f.p
	if !p.rest(time.Until(p.free)) {
		return 0, errStopped
	}
	n, err := f.File.ReadAt(b, off)
	p.free = p.free.Add(time.Duration(float64(n) / p.rate * float64(time.Second)))
	return n, err
}

// counting is a directory that counts the bytes that are read of a segment.
type counting struct {
	FS
	n   int64
	end int64 // its file seems to end here; 0: where it does
}

// Open implements FS.
func (c *counting) Open(name string) (File, error) {
	f, err := c.FS.Open(name)
	return countedFile{f, c}, err
}

type countedFile struct {
	File
	c *counting
}

// Size implements File.
func (f countedFile) Size() (int64, error) {
	size, err := f.File.Size()
	if f.c.end > 0 {
		size = min(size, f.c.end)
	}
	return size, err
}

// ReadAt implements io.ReaderAt.
func (f countedFile) ReadAt(b []byte, off int64) (n int, err error) {
	whole := len(b)
	if f.c.end > 0 {
		b = b[:max(0, min(int64(whole), f.c.end-off))]
	}
	if len(b) > 0 {
		n, err = f.File.ReadAt(b, off)
	}
	f.c.n += int64(n)
	if err == nil && n < whole {
		err = io.EOF
	}
	return n, err
}
