package seglog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/tallywheel/tallywheel/proof"
)

// Held is what [VerifyProven] holds a log to, beside the heads that it has.
type Held struct {
	Named func(stream uint32) proof.Stream // what a stream's number stands for
	Keys  []proof.Verifier                 // one of them must have signed the checkpoint; none: no signature is checked
	// an older checkpoint of the log: what it counted must still be so; nil: none
	Since []byte
}

// strict reports whether somebody asks whether the log is what it was: then what a repair gave up
// is a problem, too.
func (h Held) strict() bool { return len(h.Keys) > 0 || h.Since != nil }

// Proven is how far a log is what its heads say.
type Proven struct {
	Heads      int64  `json:"heads"`                // also of segments that retention has removed
	Segments   int    `json:"segments"`             // that hold what their heads say
	Unproven   []Span `json:"unproven,omitempty"`   // records that no head is of yet
	Checkpoint string `json:"checkpoint,omitempty"` // its origin
	Size       int64  `json:"size,omitempty"`       // heads that the checkpoint counts
	SignedBy   string `json:"signed_by,omitempty"`  // the key that was asked for
}

// Span is a run of sequences.
type Span struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// VerifyProven is VerifyKnown that holds the log to its heads, too: the records of each segment to
// its head, the heads to the checkpoint, that to its signature, and to an older checkpoint.
func VerifyProven(dir FS, known Extent, by Held) (Summary, Proven, error) {
	s := newSummary()
	if dir == nil {
		return s, Proven{}, errNoDir
	}
	by.Named = onlyKnown(by.Named)
	c := &headCheck{by: by}
	if err := c.load(dir); err != nil {
		return s, c.Proven, err
	}
	s.heads = c
	if err := s.verify(dir, known); err != nil {
		return s, c.Proven, err
	}
	err := s.compareAll(dir)
	return s, c.Proven, err
}

// headCheck is what a log is held to.
type headCheck struct {
	by Held
	Proven
	heads  map[uint64]leafHead // the newest of each segment, by its first record
	before []leafHead          // those that were not the newest
	rest   int64               // bytes behind the heads that are none
	last   *checkpointed       // nil: there is none
	since  *checkpointed
	wrong  error // with the newest checkpoint
	lost   []Missing
	made   proof.Segment
}

type leafHead struct {
	leaf int64
	proof.Head
}

// checkpointed is a checkpoint, and whether the heads are those that it counts.
type checkpointed struct {
	proof.Checkpoint
	holds bool
}

func (c *checkpointed) look(t *proof.Tree) {
	if c != nil && c.Size == t.Size() {
		c.holds = c.Root == t.Root()
	}
}

// load reads the checkpoint and the heads, in this order: a recorder may be writing them.
func (c *headCheck) load(dir FS) error {
	text, err := readCheckpoint(dir)
	if err != nil {
		return err
	}
	if text != nil {
		at, by, err := proof.OpenCheckpoint(text, c.by.Keys...)
		c.last, c.wrong, c.SignedBy = &checkpointed{Checkpoint: at}, err, by
		c.Checkpoint, c.Size = at.Origin, at.Size
	}
	if c.by.Since != nil {
		keys := c.by.Keys
		if !bytes.Contains(c.by.Since, []byte("\n\n")) { // whoever has it kept it safe
			keys = nil
		}
		at, _, err := proof.OpenCheckpoint(c.by.Since, keys...)
		if err != nil {
			return fmt.Errorf("the older checkpoint: %w", err)
		}
		c.since = &checkpointed{Checkpoint: at}
	}
	c.heads = map[uint64]leafHead{}
	var tree proof.Tree
	c.Heads, c.rest, err = eachHead(dir, func(leaf int64, h proof.Head) {
		tree.Add(h.Hash())
		c.last.look(&tree)
		c.since.look(&tree)
		if was, ok := c.heads[h.First]; ok {
			c.before = append(c.before, was)
		}
		c.heads[h.First] = leafHead{leaf, h}
	})
	return err
}

// anew is the same for another look at all segments.
func (c *headCheck) anew() *headCheck {
	if c != nil {
		c.lost, c.Segments, c.Unproven = nil, 0, nil
	}
	return c
}

// make is what makes the head of a segment, where there is one to hold it to.
func (c *headCheck) make(base uint64) *proof.Segment {
	if c == nil {
		return nil
	}
	if _, ok := c.heads[base]; !ok {
		return nil
	}
	return &c.made
}

// hole notes what the log knows to be lost.
func (c *headCheck) hole(f rawFrame) {
	if c != nil {
		c.lost = append(c.lost, Missing{From: holeFrom(f), To: f.seq})
	}
}

// lacks notes records that no head is of.
func (c *headCheck) lacks(from, to uint64) {
	if to < from {
		return
	}
	if n := len(c.Unproven); n > 0 && c.Unproven[n-1].To+1 == from {
		c.Unproven[n-1].To = to
		return
	}
	c.Unproven = append(c.Unproven, Span{from, to})
}

// knows reports whether the log knows that all of a segment is lost.
func (c *headCheck) knows(h proof.Head) bool {
	return slices.ContainsFunc(c.lost, func(m Missing) bool { return m.From <= h.First && h.Last <= m.To })
}

// differs adds a problem with a segment that is not what its head says.
func (s *Summary) differs(h proof.Head, harmless bool, format string, args ...any) {
	s.Problems = append(s.Problems, Problem{
		Segment: segmentName(h.First), What: fmt.Sprintf(format, args...), From: h.First, To: h.Last,
		Harmless: harmless && !s.heads.by.strict(),
	})
}

// compare holds the segment that was read last, in which nothing was damaged, to its head.
func (s *Summary) compare(base uint64) {
	c := s.heads
	h, ok := c.heads[base]
	if !ok || s.read.salt != h.Salt && s.read.flags&flagRepaired != 0 {
		c.lacks(base, s.next-1)
		if ok {
			s.differs(h.Head, true,
				"a repair wrote it anew after its head, leaf %d, was made: it gets another one when the log is opened",
				h.leaf)
		}
		return
	}
	log := s.read.log
	if none := [16]byte{}; log == none { // version 1 does not say
		log = h.Log
	}
	is := s.made.Head(proof.Head{Log: log, Salt: s.read.salt, First: base, Last: s.next - 1}, c.by.Named)
	if is == h.Head {
		c.Segments++
		return
	}
	switch {
	case is.Log != h.Log:
		s.differs(h.Head, false, "its head, leaf %d, is of another log: %x", h.leaf, h.Log)
	case is.Salt != h.Salt:
		s.differs(h.Head, false,
			"it is not the file that its head, leaf %d, was made of, and no repair wrote it: it was exchanged", h.leaf)
	case is.Entries != h.Entries || is.Last != h.Last:
		s.differs(h.Head, false,
			"it is not what its head, leaf %d, says: that has %d entries up to %d, here are %d up to %d",
			h.leaf, h.Entries, h.Last, is.Entries, is.Last)
	case is.PagesRoot != h.PagesRoot:
		s.differs(h.Head, false,
			"it is not what its head, leaf %d, says: a record was changed, or put in another's place", h.leaf)
	default:
		s.differs(h.Head, false,
			"the table of streams names the sources of its %d streams otherwise than its head, leaf %d", is.Streams,
			h.leaf)
	}
}

// compareAll holds what is there to all heads, and those to the checkpoints.
func (s *Summary) compareAll(dir FS) error {
	bases, err := segmentBases(dir)
	if err != nil {
		return err
	}
	c := s.heads
	var behind leafHead
	for _, base := range slices.Sorted(maps.Keys(c.heads)) {
		h := c.heads[base]
		if len(bases) > 0 && base > bases[0] && !slices.Contains(bases, base) && !s.names(h.Head) {
			s.differs(h.Head, c.knows(h.Head), "it is gone; its head, leaf %d, says that it had %d entries", h.leaf,
				h.Entries)
		}
		if from := behind.Last + 1; behind.Last > 0 && from < base &&
			!slices.ContainsFunc(bases, func(b uint64) bool { return behind.Last < b && b < base }) &&
			!c.knows(proof.Head{First: from, Last: base - 1}) {
			s.differs(proof.Head{First: from, Last: base - 1}, true,
				"there is no head of these: they were removed before they got one")
		}
		behind = h
	}
	for _, h := range c.before {
		s.differs(h.Head, true,
			"it was written anew after its head, leaf %d, was made, of %d entries: leaf %d is of what it is now",
			h.leaf, h.Entries, c.heads[h.First].leaf)
	}
	s.compareTree()
	return nil
}

// names reports whether a problem is known that tells of all of a segment.
func (s *Summary) names(h proof.Head) bool {
	return slices.ContainsFunc(s.Problems,
		func(p Problem) bool { return p.From > 0 && p.From <= h.First && h.Last <= p.To })
}

// compareTree holds the heads to the checkpoints.
func (s *Summary) compareTree() {
	c := s.heads
	wrong := func(file string, harmless bool, format string, args ...any) {
		s.Problems = append(s.Problems,
			Problem{Segment: file, What: fmt.Sprintf(format, args...), Harmless: harmless && !c.by.strict()})
	}
	if c.rest > 0 {
		wrong(headsFile, c.rest <= proof.HeadBytes,
			"it is damaged at %d: what follows is made anew when the log is opened, as far as its segments are there",
			c.Heads*proof.HeadBytes)
	}
	switch {
	case c.last == nil && c.Heads > 0:
		wrong(checkpointFile, true, "there is none, of %d heads", c.Heads)
	case c.last == nil && c.by.strict():
		wrong(checkpointFile, false, "there is none: no segment is sealed yet, or nothing of this log was ever proven")
	case c.last == nil:
	case c.wrong != nil:
		wrong(checkpointFile, false, "%v", c.wrong)
	case c.last.Size > c.Heads:
		wrong(headsFile, false, "the checkpoint counts %d heads, here are %d: the rest was lost, or removed",
			c.last.Size, c.Heads)
	case !c.last.holds:
		wrong(headsFile, false,
			"they are not those that the checkpoint counts: one was changed, removed, or put in another's place")
	}
	switch is := c.since; {
	case is == nil:
	case c.last != nil && is.Origin != c.last.Origin && is.Origin != proof.Unsigned(s.log):
		wrong(checkpointFile, false,
			"the older checkpoint is of another log, or its key was another: of %q, and not of %q", is.Origin,
			c.last.Origin)
	case is.Size > c.Heads:
		wrong(headsFile, false,
			"the log was set back: the older checkpoint counts %d segments, here are the heads of %d", is.Size, c.Heads)
	case !is.holds:
		wrong(headsFile, false,
			"the log was written anew: its first %d heads are not those that the older checkpoint counts", is.Size)
	}
}

// Errors of [ProveEntry].
var (
	// ErrNotYet: the record has no head yet, or no checkpoint counts that.
	ErrNotYet = errors.New("it cannot be proven yet")
	// ErrNoRecord: the log has no such record.
	ErrNoRecord = errors.New("there is no such record")
)

// ProveEntry makes the proof of the record, or the note, of that sequence. The log may be written
// meanwhile.
func ProveEntry(dir FS, seq uint64, named func(stream uint32) proof.Stream) (p proof.Proof, err error) {
	if dir == nil {
		return p, errNoDir
	}
	text, err := readCheckpoint(dir)
	if err != nil {
		return p, err
	}
	var c proof.Checkpoint
	if text != nil {
		if c, _, err = proof.OpenCheckpoint(text); err != nil {
			return p, fmt.Errorf("%s: %w", checkpointFile, err)
		}
	}
	at := leafHead{leaf: -1}
	if _, _, err := eachHead(dir, func(leaf int64, h proof.Head) {
		if leaf < c.Size && h.Covers(seq) {
			at = leafHead{leaf, h}
		}
	}); err != nil {
		return p, err
	}
	if at.leaf < 0 {
		return p, notProven(dir, seq)
	}
	made := &proof.Segment{}
	made.Reset(seq)
	if err := readProven(dir, at.Head, made); err != nil {
		return p, err
	}
	named = onlyKnown(named)
	p, ok := made.Prove(proof.Head{Log: at.Log, Salt: at.Salt, First: at.First, Last: at.Last}, named)
	if !ok {
		return p, fmt.Errorf("%w: %d is lost, or no record was given that number; `log cat` tells", ErrNoRecord, seq)
	}
	if p.Head != at.Head {
		return p, fmt.Errorf("%s is not what its head says; `log verify` says more", segmentName(at.First))
	}
	var tree proof.Tree
	tree.Follow(at.leaf)
	if _, _, err := eachHead(dir, func(leaf int64, h proof.Head) {
		if leaf < c.Size {
			tree.Add(h.Hash())
		}
	}); err != nil {
		return p, err
	}
	p.Leaf, p.LeafPath, p.Checkpoint = at.leaf, tree.Path(), text
	if _, _, err := p.Check(); err != nil {
		return p, fmt.Errorf("the heads are not those of the checkpoint; `log verify` says more (%w)", err)
	}
	return p, nil
}

// onlyKnown is named, of no names if that is nil.
func onlyKnown(named func(stream uint32) proof.Stream) func(stream uint32) proof.Stream {
	if named == nil {
		return func(uint32) proof.Stream { return proof.Stream{} }
	}
	return named
}

// notProven says why there is no head that a checkpoint counts of a record.
func notProven(dir FS, seq uint64) error {
	last, err := LastSequence(dir)
	if err != nil {
		return err
	}
	bases, err := segmentBases(dir)
	if err != nil {
		return err
	}
	switch {
	case seq == 0 || seq > last:
		return fmt.Errorf("%w: the log ends with %d", ErrNoRecord, last)
	case len(bases) > 0 && seq >= bases[len(bases)-1]:
		return fmt.Errorf("%w: record %d is in the newest segment, which is still written to; it is proven once that is full (log.segment)", ErrNotYet, seq)
	case len(bases) > 0 && seq < bases[0]:
		return fmt.Errorf("%w: %d is not in the log any more", ErrNoRecord, seq)
	}
	return fmt.Errorf("%w: the segment of record %d has no head, or no checkpoint counts it; the recorder makes them, some seconds after a segment is full, or when "+
		"it is started on an older log", ErrNotYet, seq)
}

// readProven reads the segment that a head is of.
func readProven(dir FS, h proof.Head, made *proof.Segment) error {
	s := &Summary{made: made}
	err := s.segment(dir, h.First, h.Last+1)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s was removed, and its head alone is left; a proof has to be made while the records are there", ErrNoRecord, segmentName(h.First))
	case err != nil:
		return err
	case len(s.Problems) > 0:
		return &CorruptError{Segment: s.Problems[0].Segment, Offset: s.Problems[0].Offset, What: s.Problems[0].What}
	case s.read.salt != h.Salt:
		return fmt.Errorf("%s was written anew since its head was made; `log verify` says more", segmentName(h.First))
	}
	return nil
}

// RecordOf is the record, or the note, that an entry is. ok is false of one of a later program's.
func RecordOf(e proof.Entry) (r Record, ok bool) {
	return rawFrame{kind: e.Kind, stream: e.Stream, seq: e.Seq, time: e.Time, data: e.Data}.record()
}
