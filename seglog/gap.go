package seglog

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// GapError says that records are not in the log any more. The reader goes on behind them.
type GapError struct {
	From, To uint64
	Cause    GapCause
}

// GapCause is why records are gone.
type GapCause uint8

// The causes.
const (
	GapNoted    GapCause = iota // the log notes that they were lost, as after a repair; or nothing says why
	GapRemoved                  // the log has removed its oldest segments, as its configuration says
	GapDamage                   // somebody else has removed a segment, or cut one, and no repair has noted it
	GapUnsynced                 // they had been stored, were not known to be durable, and an opening has missed them
)

// Error implements error.
func (e *GapError) Error() string {
	switch e.Cause {
	case GapRemoved:
		return fmt.Sprintf("records %d to %d were removed by keep or on_full", e.From, e.To)
	case GapDamage:
		return fmt.Sprintf("records %d to %d are missing: a segment is gone, or was cut", e.From, e.To)
	case GapUnsynced:
		return fmt.Sprintf("records %d to %d were stored and not synced, and are gone: the power was cut, or the log was",
			e.From, e.To)
	}
	return fmt.Sprintf("records %d to %d are not in the log any more", e.From, e.To)
}

// hole is the gap up to the segment next, behind the records of this one, which somebody has cut,
// or behind which one is gone.
func (r *Reader) hole(next uint64) error {
	gap := &GapError{max(r.next, r.sc.next), next - 1, GapDamage}
	if err := r.list(); err != nil {
		return err
	}
	if _, there := slices.BinarySearch(r.bases, r.base); !there { // the list was made while retention was at work
		gap.Cause = GapRemoved
	}
	r.next = next
	return cmp.Or(r.release(), error(gap))
}

// before is the gap from a record on up to the oldest segment of the list. Where there are two, as
// retention and somebody else have removed records, the other one follows.
func (r *Reader) before(from uint64) error {
	gap := &GapError{From: from, To: r.bases[0] - 1}
	gone, err := Before(r.dir, r.known)
	switch {
	case errors.Is(err, fs.ErrNotExist): // the oldest segment has gone meanwhile
		gap.Cause = GapRemoved
	case err != nil:
		return err
	}
	for _, g := range gone {
		if g.From <= from && from <= g.To {
			gap.Cause, gap.To = g.Cause, min(gap.To, g.To)
		}
	}
	r.next = gap.To + 1
	return gap
}

// Before says what is not in a directory any more of what the log had before its oldest record.
// known is what its owner knows; see [Extent].
func Before(dir FS, known Extent) (gone []GapError, err error) {
	found, err := findTraces(dir, nil)
	if err != nil || len(found.bases) == 0 {
		return nil, err
	}
	first := found.bases[0]
	h, err := readHead(dir, first)
	if err != nil {
		return nil, err
	}
	kept := found.keptBy(h.log).first
	damage := first // where what somebody else has removed begins
	for _, m := range found.head(found.knowing(known, h.log)) {
		damage = m.From
	}
	if damage > 1 {
		gone = append(gone, GapError{From: 1, To: damage - 1})
		if kept > 0 {
			gone[0].Cause = GapRemoved
		}
	}
	if damage < first {
		gone = append(gone, GapError{damage, first - 1, GapDamage})
	}
	return gone, nil
}
