package seglog

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Problem is one finding of [Verify].
type Problem struct {
	Segment  string `json:"segment"`
	Offset   int64  `json:"offset"`
	What     string `json:"what"`
	From     uint64 `json:"from,omitempty"` // records that cannot be read, From to To
	To       uint64 `json:"to,omitempty"`
	Harmless bool   `json:"harmless,omitempty"` // nothing that was durable is lost
}

// Summary is what [Verify] found in all.
type Summary struct {
	Segments int       `json:"segments"`
	Records  uint64    `json:"records"`
	First    uint64    `json:"first"`
	Last     uint64    `json:"last"`
	Lost     uint64    `json:"lost"` // records given up by earlier repairs
	Problems []Problem `json:"problems"`
}

// Clean reports whether nothing was found that a repair would have to see to.
func (s Summary) Clean() bool {
	for _, p := range s.Problems {
		if !p.Harmless {
			return false
		}
	}
	return true
}

// Verify reads every byte of the log that carries something and reports all damage, going on behind it. It changes
// nothing and may run while the log is written.
func Verify(dir FS) (Summary, error) {
	s := Summary{Problems: []Problem{}}
	err := eachSegment(dir, func(base, next uint64) error {
		s.Segments++
		if s.First == 0 {
			s.First = base
		}
		return s.segment(dir, base, next)
	})
	return s, err
}

// eachSegment calls f with the base of every segment in order, and that of the next one, 0 for the last.
func eachSegment(dir FS, f func(base, next uint64) error) error {
	bases, err := segmentBases(dir)
	for i := 0; err == nil && i < len(bases); i++ {
		next := uint64(0)
		if i+1 < len(bases) {
			next = bases[i+1]
		}
		err = f(bases[i], next)
	}
	return err
}

// openSegment opens a segment and returns the size of its file.
func openSegment(dir FS, base uint64) (File, int64, error) {
	f, err := dir.Open(segmentName(base))
	if err != nil {
		return nil, 0, err
	}
	size, err := f.Size()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, size, nil
}

// segment verifies one segment; next is the base of the one behind it, 0 if it is the last.
func (s *Summary) segment(dir FS, base, next uint64) error {
	f, size, err := openSegment(dir, base)
	if err != nil {
		return err
	}
	defer f.Close()
	sc, err := newScanner(f, base)
	if corrupt := (*CorruptError)(nil); errors.As(err, &corrupt) {
		p := Problem{Segment: corrupt.Segment, Offset: corrupt.Offset, What: corrupt.What}
		if next > 0 {
			p.From, p.To = base, next-1
		}
		s.Problems = append(s.Problems, p)
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.header(f, sc.header); err != nil {
		return err
	}
	for {
		b, err := sc.batch()
		if err == nil {
			s.count(b)
			continue
		}
		if sc.readErr != nil {
			return sc.readErr
		}
		more, err := s.damage(sc, size, next)
		if err != nil || !more {
			return err
		}
	}
}

// header reports every byte of the first block that is not as it was written.
func (s *Summary) header(f File, h header) error {
	got := make([]byte, headerBytes)
	if _, err := f.ReadAt(got, 0); err != nil {
		return err
	}
	want := h.encode()
	if bytes.Equal(got, want) {
		return nil
	}
	at := 0
	for got[at] == want[at] {
		at++
	}
	s.Problems = append(s.Problems, Problem{
		Segment: segmentName(h.base), Offset: int64(at), What: "the header is damaged; a copy of it is whole",
	})
	return nil
}

func (s *Summary) count(b batch) {
	for _, f := range b.frames {
		if f.kind == kindHole {
			s.Lost += holeSize(f)
			continue
		}
		s.Records++
		s.Last = max(s.Last, f.seq)
	}
}

func holeSize(f rawFrame) uint64 {
	if from := holeFrom(f); from <= f.seq {
		return f.seq - from + 1
	}
	return 0
}

// damage reports what is wrong where the scanner stopped, if anything, and takes it to the next whole batch.
func (s *Summary) damage(sc *scanner, size int64, next uint64) (more bool, err error) {
	expected, at := sc.next, sc.off+sc.bad
	durable, frames, err := sc.laterDurable(size)
	if err != nil {
		return false, err
	}
	// The next batch begins behind the next whole commit frame that closes a batch behind the damage.
	var resume int64
	var resumeSeq uint64
	err = sc.search(at+alignment, size, func(off int64, f rawFrame) bool {
		if f.kind == kindCommit && f.seq+1 >= expected {
			resume, resumeSeq = off+int64(f.size), f.seq+1
			return false
		}
		return true
	})
	if err != nil {
		return false, err
	}
	p := Problem{Segment: segmentName(sc.base), Offset: at, From: expected}
	switch {
	case durable >= expected || next > expected:
		p.What, p.To = "a batch is damaged", max(expected, resumeSeq-1)
		if resume == 0 {
			p.To = max(durable, next-1)
			if next == 0 {
				p.To = durable
			}
		}
	case resume > 0 && resumeSeq == expected: // an empty batch, or the mark of a clean end
		p.What, p.From = "a commit frame is damaged", 0
	case frames:
		p.What, p.Harmless = "a torn tail: it was never durable, and goes when the log is opened", true
	default:
		return false, nil
	}
	s.Problems = append(s.Problems, p)
	sc.seek(resume, resumeSeq)
	return resume > 0, nil
}

// Repair makes a damaged log whole: what can be read stays under its sequence numbers, what cannot becomes a hole that
// readers are told of. The damaged files stay beside it with the ending ".damaged". It returns what Verify found.
func Repair(dir FS) (Summary, error) {
	lock, err := dir.Lock()
	if err != nil {
		return Summary{}, fmt.Errorf("repair log: %w", err)
	}
	defer lock.Close()
	if err := finishRepair(dir); err != nil {
		return Summary{}, fmt.Errorf("repair log: %w", err)
	}
	found, err := Verify(dir)
	if err != nil {
		return found, err
	}
	err = eachSegment(dir, func(base, next uint64) error {
		last := uint64(0) // the highest record that is known to have been durable
		hurt := false
		for _, p := range found.Problems {
			if p.Segment == segmentName(base) && !p.Harmless {
				hurt, last = true, max(last, p.To)
			}
		}
		if next > 0 {
			last = next - 1
		}
		if hurt {
			if err := rebuild(dir, base, last); err != nil {
				return fmt.Errorf("repair %s: %w", segmentName(base), err)
			}
		}
		return nil
	})
	if err != nil {
		return found, err
	}
	return found, dir.Sync()
}

// rebuild writes the whole records of a segment into a new one, with holes up to last where there are none.
func rebuild(dir FS, base, last uint64) error {
	name := segmentName(base)
	f, size, err := openSegment(dir, base)
	if err != nil {
		return err
	}
	defer f.Close()
	sc, err := newScanner(f, base)
	if err != nil { // both headers gone: nothing in it can be believed
		sc = &scanner{f: f, header: header{base: base, salt: rand.Uint32()}}
	}
	h := sc.header
	h.salt = rand.Uint32()
	out := &rebuilt{header: h, next: base, buf: make([]byte, 0, 1<<20)}
	if out.file, err = dir.Create(name + partSuffix); err != nil {
		return err
	}
	defer out.file.Close()
	err = sc.search(headerBytes, size, func(_ int64, fr rawFrame) bool {
		if fr.kind == kindCommit || fr.seq < out.next {
			return true
		}
		return out.add(fr) == nil
	})
	if err == nil && out.next <= last {
		err = out.hole(last)
	}
	if err == nil {
		err = out.flush()
	}
	if err == nil {
		err = out.finish(size)
	}
	if err = errors.Join(err, out.err); err != nil {
		return err
	}
	_ = dir.Remove(indexName(base)) // there may be none
	if err := dir.Rename(name, name+damagedSuffix); err != nil {
		return err
	}
	return dir.Rename(name+partSuffix, name) // see finishRepair
}

// finishRepair gives the repaired segments their names where a cut came between the two renames of rebuild. The first is made when the new
// file is whole, so a damaged segment without a successor of its name has a whole one beside it.
func finishRepair(dir FS) error {
	names, err := dir.List()
	if err != nil {
		return err
	}
	renamed := false
	for _, part := range names {
		name, ok := strings.CutSuffix(part, partSuffix)
		if _, segment := segmentBase(name); !ok || !segment || slices.Contains(names, name) || !slices.Contains(names, name+damagedSuffix) {
			continue
		}
		if err := dir.Rename(part, name); err != nil {
			return err
		}
		renamed = true
	}
	if !renamed {
		return nil
	}
	return dir.Sync()
}

// rebuilt is a segment that Repair writes.
type rebuilt struct {
	header
	file    File
	off     int64
	next    uint64 // sequence of the next frame
	buf     []byte
	records int
	time    int64
	err     error
}

func (o *rebuilt) add(f rawFrame) error {
	switch {
	case f.kind == kindHole:
		return o.hole(f.seq)
	case f.seq > o.next:
		if err := o.hole(f.seq - 1); err != nil {
			return err
		}
	}
	if err := o.room(frameLen(len(f.data))); err != nil {
		return err
	}
	o.buf = appendFrame(o.buf, o.salt, kindRecord, f.stream, f.seq, f.time, f.data)
	o.next, o.time = f.seq+1, f.time
	o.records++
	return nil
}

func (o *rebuilt) hole(to uint64) error {
	if err := o.room(frameLen(8)); err != nil {
		return err
	}
	o.buf = appendHole(o.buf, o.salt, o.next, to, o.time)
	o.next = to + 1
	return nil
}

func (o *rebuilt) room(n int) error {
	if len(o.buf)+n+commitBytes <= cap(o.buf) {
		return nil
	}
	if err := o.flush(); err != nil {
		return err
	}
	if n+commitBytes > cap(o.buf) {
		o.buf = make([]byte, 0, n+commitBytes)
	}
	return nil
}

// flush writes the batch so far; the durable sequence it carries makes later damage known as such.
func (o *rebuilt) flush() error {
	if len(o.buf) == 0 {
		return nil
	}
	if o.off == 0 {
		o.off = headerBytes
		if o.err = writeAll(o.file, o.encode(), 0); o.err != nil {
			return o.err
		}
	}
	b := appendCommit(o.buf, o.salt, o.next-1, o.time, o.records, len(o.buf), o.next-1)
	if o.err = writeAll(o.file, b, o.off); o.err != nil {
		return o.err
	}
	o.off += int64(len(b))
	o.buf, o.records = o.buf[:0], 0
	return nil
}

// finish fills the file up to its old size and makes it durable.
func (o *rebuilt) finish(size int64) error {
	if o.off == 0 {
		o.off = headerBytes
		if err := writeAll(o.file, o.encode(), 0); err != nil {
			return err
		}
	}
	if o.off < size {
		if err := zero(o.file, o.off, size, nil); err != nil {
			return err
		}
	}
	return o.file.Sync()
}
