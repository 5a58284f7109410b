package seglog

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/tallywheel/tallywheel/proof"
)

// Problem is one finding of [Verify].
type Problem struct {
	Segment string `json:"segment"`
	Offset  int64  `json:"offset"`
	// from Offset on, to where reading goes on; 0: not known, or no record is hurt
	Bytes    int64  `json:"bytes,omitempty"`
	What     string `json:"what"`
	From     uint64 `json:"from,omitempty"` // records that cannot be read, From to To
	To       uint64 `json:"to,omitempty"`
	AtMost   bool   `json:"at_most,omitempty"`  // To is what may have been
	Harmless bool   `json:"harmless,omitempty"` // nothing that was durable is lost

	within bool // the segment begins within the one before it
	torn   bool // a torn tail
}

// Summary is what [Verify] found in all.
type Summary struct {
	Segments int    `json:"segments"`
	Records  uint64 `json:"records"`
	Notes    uint64 `json:"notes,omitempty"` // other entries: see Kind
	First    uint64 `json:"first"`
	Last     uint64 `json:"last"`
	// Lost counts the records that the log knows to be lost: given up by a repair, or found missing
	// when it was opened.
	Lost     uint64    `json:"lost"`
	Problems []Problem `json:"problems"`

	// Streams counts the records and notes of each stream.
	Streams map[uint32]uint64 `json:"-"`

	next   uint64   // sequence that would follow the last
	reach  uint64   // the highest sequence so far
	off    int64    // where, in the last segment
	newest string   // the last segment
	size   int64    // of its file
	blind  bool     // nothing can be read of the last segment, and the last problem says so
	part   []bool   // of the batch that is cut off there, what is whole: is it a record?
	log    [16]byte // the identity of the first segment that has one
	mixed  bool     // another has another one, or none that could be read: all headers together tell what belongs here
	chain  chain    // of the segment that is being read
	room   buffers
	read   header         // of the segment that was read last
	made   *proof.Segment // what makes its head; nil: none is asked for
	heads  *headCheck     // what it is held to; nil: nothing
	known  uint64         // who knows what the log held says that it was durable up to there
	// what a segment behind the last one that was whole should say of it; its kind is hashNone if
	// there is none
	prior prior
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

// Verify reads every byte of the log that carries something and reports all damage, going on behind
// it. It changes nothing and may run while the log is written.
func Verify(dir FS) (Summary, error) { return VerifyKnown(dir, Extent{}) }

// VerifyKnown is Verify for who knows what the log held. What it says to be gone is what the next
// opening, with the same Config.Expect, finds missing.
func VerifyKnown(dir FS, known Extent) (Summary, error) {
	s := newSummary()
	err := s.verify(dir, known)
	return s, err
}

// verify fills a summary that is new.
func (s *Summary) verify(dir FS, known Extent) error {
	known, err := known.withSaid(dir) // first: the log may be written to
	if err != nil {
		return err
	}
	s.known = max(s.known, known.Last)
	bases, err := segmentBases(dir)
	if err == nil {
		err = s.segments(dir, bases)
	}
	defer s.noteNoFile(dir) // strangers begins the summary anew
	var foreign []head
	if err == nil && s.mixed {
		if foreign, err = s.strangers(dir); len(foreign) > 0 {
			bases = slices.DeleteFunc(bases, func(base uint64) bool { return isAmong(foreign, base) })
			err = s.segments(dir, bases)
		}
	}
	if err != nil {
		return err
	}
	found, err := findTraces(dir, foreign)
	if err == nil && slices.Equal(found.bases, bases) { // else the log goes on, and what was last is not
		s.missing(found, found.knowing(known, s.log))
	}
	return err
}

// noteNoFile reports what stands in the place of the file `durable` and is no file.
func (s *Summary) noteNoFile(dir FS) {
	f, err := dir.Open(durableFile)
	switch {
	case err == nil:
		f.Close()
	case errors.Is(err, errNoFile):
		s.Problems = append(s.Problems, Problem{
			Segment: durableFile, Harmless: true,
			What: errNoFile.Error() + ": the recorder sets it aside, and says there again how far the log is durable",
		})
	}
}

func newSummary() Summary { return Summary{Problems: []Problem{}, Streams: map[uint32]uint64{}} }

// strangers finds the segments that belong to other logs, for which it takes all headers, and what
// has but the name of one. If there are any, the summary begins anew, with them as its problems.
func (s *Summary) strangers(dir FS) ([]head, error) {
	heads, err := readHeads(dir)
	if err != nil {
		return nil, err
	}
	id, foreign := identify(heads, [16]byte{})
	strays, err := straysAmong(dir, heads, s.known)
	if err != nil || len(foreign)+len(strays) == 0 {
		return nil, err
	}
	held, last := s.heads, s.known
	*s = newSummary()
	s.heads, s.known = held.anew(), last
	for _, h := range foreign {
		other := h.foreignTo(id)
		s.Problems = append(s.Problems, Problem{Segment: other.Segment, Offset: other.Offset, What: other.What})
	}
	for _, h := range strays {
		s.Problems = append(s.Problems, Problem{
			Segment: segmentName(h.name),
			What:    "nothing can be read of it, and the log has no place for it: it has but the name of a segment",
		})
	}
	return append(foreign, strays...), nil
}

// segments verifies segments, in the order of the log.
func (s *Summary) segments(dir FS, bases []uint64) error {
	return eachSegment(bases, func(base, next uint64) error {
		before := len(s.Problems)
		s.made = s.heads.make(base)
		err := s.segment(dir, base, next)
		if err != nil || len(s.Problems) > before {
			now, listErr := segmentBases(dir)
			// retention took it meanwhile, and may have used its file again
			if _, there := slices.BinarySearch(now, base); !there {
				s.Problems = s.Problems[:before]
				return listErr
			}
		}
		if s.Segments++; s.First == 0 {
			s.First = base
		}
		if err == nil && s.heads != nil && len(s.Problems) == before {
			s.compare(base)
		}
		return err
	})
}

// missing reports what is gone by the traces that it left, and by what is known.
func (s *Summary) missing(found traces, known Extent) {
	for _, m := range found.head(known) {
		p := Problem{Segment: segmentName(m.From), What: "the segment is gone", From: m.From, To: m.To}
		s.Problems = slices.Insert(s.Problems, 0, p) // in the order of the log
	}
	traced, _ := found.end(Extent{})
	last, more := found.end(known)
	switch {
	case s.blind:
		p := &s.Problems[len(s.Problems)-1]
		p.From, p.To = s.next, last
		if traced < s.next {
			stored := known.stored(last)
			p.To = known.most(max(stored, s.next-1), max(s.size, defaultSegment))
			p.AtMost = p.To > stored
		}
		if traced < s.next && p.To >= s.next {
			p.What += ", with some or all of these"
		}
	case len(found.bases) == 0 && (known.stored(last) > 0 || more):
		from, stored := found.first(known), known.stored(last)
		p := Problem{Segment: segmentName(from), What: "every segment is gone", From: from, To: stored}
		if more {
			p.To = known.most(max(stored, from-1), defaultSegment)
			p.AtMost = p.To > stored
		}
		s.Problems = append(s.Problems, p)
	case len(found.bases) > 0:
		s.keep(last)
		p := Problem{Segment: s.newest, Offset: s.off, What: "what followed is gone", From: s.next, To: last}
		if more {
			stored := known.stored(last)
			p.To = known.most(max(stored, s.next-1), s.size)
			p.AtMost = p.To > stored
		}
		switch {
		case p.To < s.next:
			s.expectGiven(known.Given)
			return
		case more:
			p.What = "the segment behind it is gone, with some or all of these"
		case traced < s.next:
			p.What = "these were durable, by the recorder's books or the log's own note, and they are gone"
		}
		s.Problems = append(s.Problems, p)
		s.expectGiven(known.Given)
	}
}

// keep counts what the next opening keeps of a batch that is cut off, where the log is known to
// have been durable up to last.
func (s *Summary) keep(last uint64) {
	i := slices.IndexFunc(s.Problems, func(p Problem) bool { return p.torn && p.Segment == s.newest })
	if i < 0 || last < s.next {
		return
	}
	p, from := &s.Problems[i], s.next
	for ; len(s.part) > 0 && s.next <= last; s.part, s.next = s.part[1:], s.next+1 {
		if s.Last = s.next; s.part[0] {
			s.Records++
		} else {
			s.Notes++
		}
	}
	p.From, p.What = 0, "a batch is cut off: nothing of it is whole, and it goes when the log is opened"
	if s.next > from {
		p.What = fmt.Sprintf("a batch is cut off: of it %d to %d are whole, and stay when the log is opened", from,
			s.next-1)
	}
}

// expectGiven reports what is missing of the records that the log is known to have held, durable or
// not.
func (s *Summary) expectGiven(last uint64) {
	from := max(1, s.next)
	for _, p := range s.Problems { // what is reported already
		from = max(from, p.To+1)
	}
	if last >= from {
		s.Problems = append(s.Problems, Problem{
			Segment: s.newest, Offset: s.off, What: "by the recorder's books, or the log's own note, there was more, not known to be durable",
			From: from, To: last,
		})
	}
}

// eachSegment calls f with every base in order, and with the next one, 0 for the last.
func eachSegment(bases []uint64, f func(base, next uint64) error) error {
	var err error
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
	if errors.Is(err, errNoFile) {
		return nil, 0, &CorruptError{segmentName(base), 0, errNoFile.Error()}
	}
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
	if base <= s.reach { // its records are there already: others have their sequences
		s.prior, s.mixed = prior{}, true
		s.Problems = append(s.Problems, Problem{
			Segment: segmentName(base), within: true,
			What: fmt.Sprintf("it begins with record %d, and %s reaches up to record %d", base, s.newest, s.reach),
		})
		return nil
	}
	defer func() { s.reach = max(s.reach, s.next-1) }()
	s.newest, s.size, s.off, s.next, s.part = segmentName(base), 0, 0, base, nil
	f, size, err := openSegment(dir, base)
	if err != nil {
		return s.unreadable(err, base, next)
	}
	defer f.Close()
	s.size = size
	sc, err := beginScan(f, base, size, s.room)
	if err != nil {
		return s.unreadable(err, base, next)
	}
	defer func() { s.room = sc.buffers }()
	if s.read = sc.header; s.made != nil {
		s.made.Reset(s.made.Follows())
	}
	s.belongs(sc.header)
	s.header(sc)
	s.follows(sc.header)
	before := len(s.Problems)
	s.chain = chainFrom(sc.header)
	defer func() {
		if s.prior = s.chain.sum(base); len(s.Problems) > before || sc.flags&flagRepaired != 0 {
			s.prior = prior{}
		}
	}()
	for {
		b, err := sc.batch()
		if err == nil {
			s.count(b)
			continue
		}
		s.off, s.next = sc.off, sc.next
		if sc.readErr != nil {
			return sc.readErr
		}
		more, err := s.damage(sc, b.frames, size, next)
		if err != nil || !more {
			return err
		}
	}
}

// follows checks what the header of a segment says of the one before it. A repair breaks the chain,
// and says so in the header of what it wrote; so does a segment that is gone or damaged, which is
// reported anyway.
func (s *Summary) follows(h header) {
	was := s.prior
	s.prior = prior{}
	if was.kind == hashNone || h.prior.kind != was.kind || h.prior.base != was.base || h.prior == was {
		return
	}
	s.Problems = append(s.Problems, Problem{
		Segment: segmentName(was.base),
		What:    fmt.Sprintf("it is not what it was when %s was begun: its hash is another", segmentName(h.base)),
	})
}

// unreadable reports a segment of which nothing can be read, if that is what err says.
func (s *Summary) unreadable(err error, base, next uint64) error {
	s.prior, s.mixed = prior{}, true
	corrupt := (*CorruptError)(nil)
	if !errors.As(err, &corrupt) {
		return err
	}
	p := Problem{Segment: corrupt.Segment, Offset: corrupt.Offset, What: corrupt.What}
	if next > 0 {
		p.From, p.To = base, next-1
	} else {
		s.blind = true
	}
	s.Problems = append(s.Problems, p)
	return nil
}

// belongs notes which log a segment says to belong to.
func (s *Summary) belongs(h header) {
	if none := [16]byte{}; s.log == none {
		s.log = h.log
	} else if h.log != none && h.log != s.log {
		s.mixed = true
	}
}

// header reports a first block that is not as it was written.
func (s *Summary) header(sc *scanner) {
	if sc.harm >= 0 {
		s.Problems = append(s.Problems, Problem{
			Segment: segmentName(sc.base), Offset: sc.harm, What: "the header is damaged; a copy of it is whole",
		})
	}
}

func (s *Summary) count(b batch) {
	s.chain.batch(b)
	for _, f := range b.frames {
		if f.kind == kindHole {
			s.Lost += holeSize(f)
			s.heads.hole(f)
			continue
		}
		if s.made != nil {
			s.made.Add(f.entry())
		}
		if s.Streams != nil { // else nobody asks
			s.Streams[f.stream]++
		}
		if f.isRecord() {
			s.Records++
		} else {
			s.Notes++
		}
		s.Last = max(s.Last, f.seq)
	}
}

func holeSize(f rawFrame) uint64 {
	if from := holeFrom(f); from <= f.seq {
		return f.seq - from + 1
	}
	return 0
}

// damage reports what is wrong where the scanner stopped, if anything, and takes it to the next
// whole batch. part is what it had read of the batch that is not whole.
func (s *Summary) damage(sc *scanner, part []rawFrame, size int64, next uint64) (more bool, err error) {
	expected, at := sc.next, sc.off+sc.bad
	durable, frames, err := sc.laterDurable(size)
	if err != nil {
		return false, err
	}
	var resume int64
	var resumeSeq uint64
	if frames {
		if resume, resumeSeq, err = sc.behind(size); err != nil {
			return false, err
		}
	}
	if resume > 0 && next == 0 { // else it is as if something was cut: what is missing is said in the end
		durable = max(durable, s.known)
	}
	p := Problem{Segment: segmentName(sc.base), Offset: at, Bytes: max(0, cmp.Or(resume, size)-at), From: expected}
	var whole []bool
	switch {
	case resume > 0 && resumeSeq == expected && len(part) > 0:
		p.What, p.From = "frames in the place of others, of which none is missing", 0
	case resume > 0 && resumeSeq == expected: // an empty batch, or the mark of a clean end
		p.What, p.From = "a commit frame is damaged", 0
	case durable >= expected || next > expected:
		p.What, p.To = "a batch is damaged", resumeSeq-1
		if resume == 0 {
			p.To = max(durable, next-1)
			if next == 0 {
				p.To = durable
			}
			if durable < expected {
				p.What = "what followed, up to the next segment, is gone or damaged"
			}
		}
	case frames && next == expected:
		p.What, p.Harmless, p.From = "frames behind its end, from where the next segment goes on: no part of the log", true, 0
	case frames:
		p.What, p.Harmless = "a torn tail: nothing says that it was durable, and it goes when the log is opened", true
		p.torn, whole = true, recordsOf(wholeOf(part, expected, math.MaxUint64))
	default:
		return false, nil
	}
	if b, err := sc.batch(); err == nil { // it was being written
		s.count(b)
		return true, nil
	}
	s.Problems, s.part = append(s.Problems, p), whole
	sc.seek(resume, resumeSeq)
	return resume > 0, nil
}

// recordsOf says of each frame whether it is a record, and not a note.
func recordsOf(frames []rawFrame) (are []bool) {
	for _, f := range frames {
		are = append(are, f.isRecord())
	}
	return are
}
