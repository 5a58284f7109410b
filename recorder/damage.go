package recorder

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// Bounds of what is kept of damage to what is stored.
const (
	placesOfSegment = 8
	placesOfSheet   = 32
)

// damageWatch is what the log's looks at its segments have found. It is told on a goroutine of the
// log.
type damageWatch struct {
	log *slog.Logger

	mu    sync.Mutex
	hurt  map[uint64]ledger.LogDamage // by the first record of the segment
	bytes uint64                      // that were read and checked
	whole time.Time                   // when all had been looked at; zero: not since the start
}

// carry takes over what an earlier start has found, until the log has looked again. It returns the
// segments.
func (d *damageWatch) carry(known *ledger.LogDamage) (suspect []uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hurt = map[uint64]ledger.LogDamage{}
	if known == nil {
		return nil
	}
	for _, p := range known.First {
		of := d.hurt[p.Base]
		of.Add(p)
		d.hurt[p.Base] = of
		suspect = append(suspect, p.Base)
	}
	return suspect
}

// checked takes in what a look has found.
func (d *damageWatch) checked(c seglog.Checked) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.bytes += uint64(c.Bytes)
	if c.Last {
		d.whole = now
	}
	was, known := d.hurt[c.Base]
	if len(c.Problems) == 0 {
		if known {
			delete(d.hurt, c.Base)
			d.log.Info("a segment of the log that was damaged is whole, or is not there any more", "first_record",
				c.Base)
		}
		return
	}
	var is ledger.LogDamage
	for _, p := range c.Problems {
		place := ledger.DamagedPlace{
			Found: ledger.Time(now.UnixNano()), Base: c.Base, Segment: p.Segment, Offset: p.Offset, Bytes: p.Bytes,
			What: p.What, From: p.From, To: p.To, AtMost: p.AtMost,
		}
		i := slices.IndexFunc(was.First, place.Is)
		if i >= 0 {
			place.Found = was.First[i].Found
		} else if is.Places < placesOfSegment {
			d.log.Error("what the log has stored is damaged", "segment", p.Segment, "offset", p.Offset, "what", p.What,
				"records", place.Records())
		}
		is.Add(place)
	}
	is.First = is.First[:min(len(is.First), placesOfSegment)]
	d.hurt[c.Base] = is
}

// account is what is damaged now, of a log whose oldest record is first; nil: nothing is known to
// be.
func (d *damageWatch) account(first uint64) *ledger.LogDamage {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all ledger.LogDamage
	for base, of := range d.hurt {
		if base < first { // retention took it
			delete(d.hurt, base)
			continue
		}
		all.Places, all.Records, all.AtMost = all.Places+of.Places, all.Records+of.Records, all.AtMost || of.AtMost
		all.First = append(all.First, of.First...)
	}
	if all.Places == 0 {
		return nil
	}
	slices.SortFunc(all.First, func(a, b ledger.DamagedPlace) int {
		return cmp.Or(cmp.Compare(a.Base, b.Base), cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.From, b.From))
	})
	all.First = all.First[:min(len(all.First), placesOfSheet)]
	return &all
}

// Checked is how many bytes of what is stored have been read and checked since the start, and when
// all of it had been; zero: not yet.
func (r *Recorder) Checked() (bytes uint64, whole time.Time) {
	r.damage.mu.Lock()
	defer r.damage.mu.Unlock()
	return r.damage.bytes, r.damage.whole
}
