package seglog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"
)

// Recovery says what was found when a log was opened.
type Recovery struct {
	Clean    bool     // the log had been closed in order, or is new
	First    uint64   // oldest sequence kept
	Last     uint64   // last sequence kept
	CutBytes int64    // bytes of a torn tail that were cut
	CutAt    string   // segment and offset of the cut, "" if there was none
	Torn     []string // names that later segments now have, set aside because the one before them was torn
	Damaged  []string // names that segments now have whose header is cut off: nothing can be read of them

	// Missing is what had been durable and is gone, by the traces that it left, by Config.Expect,
	// and by what repairs gave up since the opening before. Its sequences are not given again: Last
	// is that of the last one missing, if that is higher. What is missing at the end is reported
	// again until a record, or the mark of a clean end, stands behind it: an opening that failed,
	// or was killed, may not have told. A gap between two segments is reported at every opening
	// until a repair has seen to it, and by the one after that; the rest once.
	Missing []Missing

	// Unsynced is what had been stored, was not known to be durable, and is gone from the end, by
	// Config.Expect (Given): a power cut took it, or somebody cut the log. Its To is 0 if there is
	// none. Its sequences are not given again either, and it is reported as what is missing there.
	Unsynced Missing
}

// CorruptError is damage in a part of the log that had been durable.
type CorruptError struct {
	Segment string // file name
	Offset  int64  // of the first byte that is wrong, as far as that can be told
	What    string
}

// Error implements error.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s is damaged at offset %d: %s; `log verify` lists all damage, `log repair` keeps what is whole",
		e.Segment, e.Offset, e.What)
}

// recover finds the end of the log and makes it ready for appending.
func (l *Log) recover() error {
	l.shelf.cfg, l.shelf.said = l.cfg, &l.said
	if err := refuseNewer(l.cfg.FS); err != nil {
		return err
	}
	if err := l.tidy(); err != nil {
		return err
	}
	heads, err := l.dismissCut()
	if err != nil {
		return err
	}
	found, err := findTraces(l.cfg.FS, nil)
	if err != nil {
		return err
	}
	if len(heads) == 0 {
		err = l.create(found)
	} else {
		err = l.resume(found, heads)
	}
	if err == nil {
		err = l.upgrade()
	}
	if err == nil {
		err = l.cfg.FS.Sync()
	}
	if err != nil {
		return err
	}
	l.next = l.seg.last + 1
	l.stored, l.durable = l.seg.last, l.seg.last
	l.recovered.Last = l.seg.last
	untold, marks, err := findUntold(l.cfg.FS)
	if err != nil {
		return err
	}
	if len(untold) > 0 {
		l.recovered.Missing = append(l.recovered.Missing, untold...)
		slices.SortFunc(l.recovered.Missing, byFrom)
	}
	l.recovered.Clean = l.recovered.Clean && len(l.recovered.Missing) == 0
	l.syncedAt = time.Now()
	if l.cfg.OnRecovered != nil {
		if err := l.cfg.OnRecovered(l.recovered); err != nil {
			return err
		}
	}
	if err := forgetUntold(l.cfg.FS, marks); err != nil {
		return err
	}
	if l.seg.absent { // the traces are all that tells what is gone
		l.found = found
		return nil
	}
	return l.settle(found)
}

// resume finds the end of a log that has segments, with these headers.
func (l *Log) resume(found traces, heads []head) (err error) {
	for i, h := range heads {
		if !h.ok || h.base != h.name { // its copy may be the right one; else the error says what is wrong
			if heads[i].header, err = readHeader(l.cfg.FS, h.name); err != nil {
				return err
			}
			heads[i].ok = true
		}
		l.shelf.id = max(l.shelf.id, heads[i].id)
	}
	if err := l.recognize(heads); err != nil {
		return err
	}
	if err := l.heed(l.identity); err != nil {
		return err
	}
	// What the last segment knows to be durable needs no look; it begins in the segment that holds
	// the record after that.
	newest := len(heads) - 1
	durable := heads[newest].durable
	if newest > 0 && heads[newest].name > durable+1 {
		if durable, err = durableIn(l.cfg.FS, heads[newest]); err != nil {
			return err
		}
	}
	from := newest
	for from > 0 && heads[from].name > durable+1 {
		from--
	}
	if empty, err := isEmpty(l.cfg.FS, heads[from].name); err != nil {
		return err
	} else if empty && from > 0 { // the end of the one before it may be a hole of which nobody was told
		from--
	}
	l.recovered.Missing = found.head(found.knowing(l.cfg.Expect, l.identity))
	for i, h := range heads[:from] {
		old, err := l.describe(h, heads[i+1].header)
		if err != nil {
			return err
		}
		if next := heads[i+1].name; old.last+1 < next {
			l.recovered.Missing = append(l.recovered.Missing, Missing{
				From: old.last + 1, To: next - 1,
				What: "what followed in " + segmentName(h.name) + ", or behind it, is gone",
			})
		}
		l.shelf.old = append(l.shelf.old, old)
	}
	l.recovered.First = heads[0].name
	for i, h := range heads[from:] {
		if from+i == newest { // what its own frames know is found there
			durable = heads[newest].durable
		}
		whole, err := l.reopen(h.name, durable, heads[from+i+1:], found)
		if err != nil {
			return err
		}
		if !whole {
			break
		}
	}
	return nil
}

// tidy removes what a crash left half done.
func (l *Log) tidy() error {
	if err := finishRepair(l.cfg.FS); err != nil {
		return err
	}
	names, err := l.cfg.FS.List()
	if err != nil {
		return err
	}
	for _, name := range names {
		if !isScratch(name) {
			continue
		}
		err := l.cfg.FS.Remove(name)
		switch {
		case err == nil, errors.Is(err, fs.ErrNotExist):
		case errors.Is(err, errNoFile), errors.Is(err, fs.ErrPermission): // it is in nobody's way
			l.shelf.leave(name, err)
		default:
			return err
		}
	}
	return nil
}

// create makes the first segment of a log that has none, zeros and all, so that the first sync is
// as fast as later ones. If there was a log before, it begins with a hole for its sequences. Where
// there is no room yet, the segment is absent until the first batch finds some.
func (l *Log) create(found traces) error {
	var gone Missing
	last, more := found.end(l.cfg.Expect)
	if err := l.heed(l.cfg.Identity); err != nil {
		return err
	}
	known := l.cfg.Expect // with what the log says
	if stored := known.stored(max(last, known.Last)); stored > 0 || more {
		first := found.first(found.knowing(known, l.cfg.Identity))
		gone = Missing{From: first, To: stored, What: "every segment is gone"}
		if more {
			gone.To = known.most(max(stored, gone.From-1), l.cfg.SegmentBytes)
			gone.AtMost = gone.To > stored
		}
	}
	base := max(1, gone.From)
	if gone.To < base { // what is gone had no record
		gone.To = 0
	} else {
		l.recovered.Missing = []Missing{gone}
	}
	l.recovered.Clean, l.recovered.First = true, base
	if l.identity == [16]byte{} {
		l.identity = newIdentity(cmp.Or(l.cfg.Identity, l.said.said.log))
	}
	return l.goOnWith(base, gone.To, gone)
}

// describe reads the extent of a sealed segment, by its index where that is good; next is the
// header of the one behind it.
func (l *Log) describe(h head, next header) (sealedSegment, error) {
	x, err := h.index, error(nil)
	if x == nil {
		if x, err = loadIndex(l.cfg.FS, h.name); err == nil && x.last+1 == next.base {
			l.giveIndex(x, h.header, x.last)
		}
	}
	if err == nil && (h.size < l.cfg.SegmentBytes || h.zeros) { // it may have been cut since
		err = l.reaches(h.name, x)
	}
	if err != nil {
		return sealedSegment{}, err
	}
	s := sealedSegment{base: h.name, last: x.last, time: x.maxTime(), bytes: h.size, salt: h.salt}
	if s.last+1 < next.base { // not all of it can be read: it must not seem older than it is
		s.time = max(s.time, next.created)
		behind, err := l.lastWhole(h)
		if err != nil {
			return sealedSegment{}, err
		}
		s.last = max(s.last, min(behind, next.base-1))
	}
	return s, nil
}

// lastWhole is the last record of the last whole batch of a segment, also behind damage, of which
// an index that was made anew knows nothing: what is damaged is not gone.
func (l *Log) lastWhole(h head) (last uint64, err error) {
	f, size, err := openSegment(l.cfg.FS, h.name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	sc, err := newScanner(f, h.name)
	if err != nil {
		return 0, err
	}
	err = sc.search(headerBytes, size, func(_ int64, f rawFrame) bool {
		if f.kind == kindCommit {
			last = max(last, f.seq)
		}
		return true
	})
	return last, err
}

// reopen scans a segment to its end, cuts a torn tail, and reports whether the segments behind it
// follow. Else they are set aside, and it is the one that is written to. durable is what later
// segments know to be durable.
func (l *Log) reopen(base, durable uint64, behind []head, found traces) (whole bool, err error) {
	f, size, err := openSegment(l.cfg.FS, base)
	if err != nil {
		return false, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	sc, err := newScanner(f, base)
	if err != nil {
		return false, err
	}
	s := &segment{
		header: sc.header, file: f, size: max(size, l.cfg.SegmentBytes), last: base - 1, index: &index{},
		chain: chainFrom(sc.header), grows: size < l.cfg.SegmentBytes,
	}
	end, err := l.endOf(s, sc, size, durable, behind)
	if err != nil {
		return false, err
	}
	l.recovered.Clean = end.clean && s.last >= s.base // an empty one has no mark: see mend
	// it is empty: what the one before it ends with is the end
	if s.off == headerBytes {
		end.gone = l.untold
	}
	l.untold = end.gone
	if end.cut {
		return l.leaveCut(s, end, behind, found)
	}
	if len(behind) == 0 && l.hasHead(s) {
		return false, l.goOnBehind(s, end, found)
	}
	if err := l.mend(s, end, len(behind) == 0, found); err != nil {
		return false, err
	}
	if end.skipped {
		l.recovered.Missing = append(l.recovered.Missing, s.gone(s.last+1, behind[0].name-1, false))
	}
	// Where the next one goes on, frames behind the end are no torn tail: it was sealed there.
	if len(behind) > 0 && (s.last+1 >= behind[0].name || end.skipped) {
		if s.last+1 > behind[0].name {
			what := fmt.Sprintf("%s reaches up to record %d", s.name(), s.last)
			return false, &CorruptError{segmentName(behind[0].name), 0, what}
		}
		l.giveIndex(s.index, s.header, s.last)
		l.shelf.old = append(l.shelf.old, s.sealed())
		return true, f.Close()
	}
	if _, err := f.WriteAt(nil, s.off); err != nil {
		return false, fmt.Errorf("%w: the log goes on in this segment: see to it that this user may write it", err)
	}
	if err := s.track(l.cfg.FS); err != nil {
		return false, err
	}
	if err := l.dismissTorn(s, end, behind); err != nil {
		return false, err
	}
	l.use(s)
	return false, nil
}

// endOf finds where a segment ends. Beyond the last whole batch lie zeros, old records under
// another salt, or a batch that was cut off. It is damage when something later knows that what
// should be here was durable.
func (l *Log) endOf(s *segment, sc *scanner, size int64, durable uint64, behind []head) (ending, error) {
	end, err := s.scan(sc)
	if err != nil {
		return end, err
	}
	later, frames, err := l.durableBehind(sc, size, durable, behind)
	if err != nil {
		return end, err
	}
	end.size, end.frames, end.durable = size, frames, max(durable, end.durable)
	end.skipped = len(behind) > 0 && !frames && s.last+1 < behind[0].name && behind[0].skips(s.base)
	if later > s.last && !end.skipped {
		err = s.passDamage(sc, later, &end)
		end.cut = true
	}
	return end, err
}

// durableBehind is up to where something knows that the log was durable behind the last whole
// batch, and whether whole frames stand there.
func (l *Log) durableBehind(sc *scanner, size int64, durable uint64, behind []head) (last uint64, frames bool,
	err error,
) {
	last, frames, err = sc.laterDurable(size)
	if err != nil {
		return 0, false, err
	}
	if len(behind) > 0 { // what later segments know of their own records is nothing that is to be here
		return max(last, min(max(durable, l.cfg.Expect.Last), behind[0].name-1)), frames, nil
	}
	if frames {
		cut, err := sc.isCut(size)
		if err == nil && !cut {
			cut, err = sc.isTornHole(size)
		}
		if err != nil {
			return 0, false, err
		}
		if !cut {
			last = max(last, l.cfg.Expect.Last)
		}
	}
	return last, frames, nil
}

// mend makes a segment durable, and its end fit to be written behind. last says that it is the last
// segment.
func (l *Log) mend(s *segment, end ending, last bool, found traces) error {
	used, err := lastNonZero(s.file, s.off, end.size)
	if err == nil && last {
		err = l.complete(s, end, found)
	}
	if err != nil {
		return err
	}
	if s.base == 1 && s.last == 0 { // a log without a record is as good as new, unless some were on their way
		l.recovered.Clean = end.clean && used <= s.off
	}
	if end.frames && used > s.off {
		l.recovered.CutBytes += used - s.off
		l.recovered.CutAt = fmt.Sprintf("%s at %d", s.name(), s.off)
	}
	// A record of the batch that was cut may be whole: it must not come to life behind a later one.
	// The zeros of an earlier opening may be in doubt: where a batch can be, they are written
	// again.
	if !end.clean {
		used = max(used, min(end.size, s.off+int64(l.cfg.BufferBytes)+commitBytes))
	}
	if err := zero(s.file, s.off, used, nil); err != nil {
		return err
	}
	if end.durable < s.last {
		if err := s.renew(end.durable + 1); err != nil {
			return fmt.Errorf("write %s again: %w", s.name(), err)
		}
	}
	if err := s.file.Sync(); err != nil {
		return fmt.Errorf("sync of %s: %w", s.name(), err)
	}
	return nil
}

// ending is how the scan of a segment ended.
type ending struct {
	size    int64      // of the file
	frames  bool       // whole frames follow, of no whole batch
	clean   bool       // with the mark of a log that was closed in order
	durable uint64     // the highest sequence that something knows to be durable
	part    []rawFrame // whole frames of a batch that is not whole; views, until the scanner reads on
	skipped bool       // the segment that stood behind it is gone, and others are there
	cut     bool       // it is behind a cut: see passCut
	// what an earlier opening found missing, if nothing was written since; else the To is 0
	gone, unsynced Missing
}

// scan reads the whole batches of a segment.
func (s *segment) scan(sc *scanner) (ending, error) {
	e := ending{clean: true, durable: sc.durable}
	for {
		b, err := sc.batch()
		if err != nil {
			s.off, e.part = sc.off, b.frames
			break
		}
		s.chain.batch(b)
		e.durable = max(e.durable, b.durable)
		e.gone, e.unsynced = s.goneIn(b)
		e.clean = len(b.frames) == 0
		if !e.clean {
			s.index.add(b.off, b.first, b.time)
			s.last = b.last
		}
	}
	if sc.readErr != nil {
		return e, fmt.Errorf("read %s at %d: %w", s.name(), sc.off, sc.readErr)
	}
	return e, nil
}

// reach is up to which sequence the log once was durable, by traces and by what the owner knows,
// and up to which it may have reached; atMost says that it need not have.
func (l *Log) reach(s *segment, end ending, found traces) (last, to uint64, atMost bool) {
	known := l.cfg.Expect
	last, more := found.end(known)
	if more && end.gone.To == 0 || known.Stored > s.last {
		stored := known.stored(last)
		to = known.most(max(stored, s.last), l.cfg.SegmentBytes)
		return last, to, to > stored
	}
	return last, last, false
}

// complete sees to it that the log's last segment reaches as far as it once did, by traces and by
// what the owner knows.
func (l *Log) complete(s *segment, end ending, found traces) error {
	if end.gone.To > 0 { // the traces of that are there as long as it has not been told
		l.recovered.Missing = append(l.recovered.Missing, end.gone)
	}
	l.recovered.Unsynced = end.unsynced
	last, to, atMost := l.reach(s, end, found)
	given := l.cfg.Expect.Given
	if max(to, given) <= s.last {
		return nil
	}
	// a segment that was removed must not come back beside the hole for its records
	if err := l.cfg.FS.Sync(); err != nil {
		return err
	}
	missing, unsynced, err := s.complete(end.part, last, to, given, end.durable, atMost)
	if missing.To > 0 {
		l.recovered.Missing = append(l.recovered.Missing, missing)
	}
	if unsynced.To > 0 {
		l.recovered.Unsynced = unsynced
	}
	return err
}

// renew writes what the segment holds from the record seq on once more. After a failed sync the
// kernel shows it, takes it for written, and may not have brought it to the disk: only what is
// written again is synced again. It may have been another process that met the failure, so this is
// done whenever it is not known that all is durable.
func (s *segment) renew(seq uint64) error {
	off := int64(headerBytes)
	if e, ok := s.index.bySequence(seq); ok {
		off = e.off
	}
	buf := make([]byte, min(1<<20, s.off-off))
	for off < s.off {
		b := buf[:min(int64(len(buf)), s.off-off)]
		if n, err := s.file.ReadAt(b, off); n < len(b) {
			return err
		}
		if err := writeAll(s.file, b, off); err != nil {
			return err
		}
		off += int64(len(b))
	}
	return nil
}

// lastNonZero returns the offset behind the last byte other than zero in [off, size), or off.
func lastNonZero(f io.ReaderAt, off, size int64) (int64, error) {
	end := off
	buf := make([]byte, max(0, min(256<<10, size-off)))
	for at := off; at < size; {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
		for i := n - 1; i >= 0; i-- {
			if buf[i] != 0 {
				end = at + int64(i) + 1
				break
			}
		}
		at += int64(n)
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	return end, nil
}

func readHeader(dir FS, base uint64) (header, error) {
	f, _, err := openSegment(dir, base)
	if err != nil {
		return header{}, err
	}
	defer f.Close()
	sc, err := newScanner(f, base)
	if err != nil {
		return header{}, err
	}
	return sc.header, nil
}
