package seglog

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/tallywheel/tallywheel/internal/fault"
)

// TestWholeBehindZeros zeroes a part of a segment. Readers, Verify and a repair find every batch
// that is whole, also the first one behind the zeros: the commit frame before it is gone, its own
// one says where it begins. They had passed over that batch, and called it damaged.
func TestWholeBehindZeros(t *testing.T) {
	const records = 600
	pristine := fault.New()
	cfg := small(faulty{pristine}, SyncBatch)
	cfg.BatchDelay = 1 << 40
	l := open(t, cfg)
	appendTens(t, l, records)
	closeLog(t, l)
	bases := segmentsOf(t, pristine)
	for _, base := range []uint64{bases[0], bases[1], bases[len(bases)-2]} {
		frames, _ := framesOf(t, pristine.Bytes(segmentName(base)), base)
		var batches [][]placed
		for i, first := 0, 0; i < len(frames); i++ {
			if frames[i].kind == kindCommit {
				batches, first = append(batches, frames[first:i+1]), i+1
			}
		}
		if len(batches) < 6 {
			t.Fatalf("%s has %d batches", segmentName(base), len(batches))
		}
		end := func(f placed) int64 { return f.off + int64(f.size) }
		last := func(b []placed) placed { return b[len(b)-1] }
		middle := func(b []placed) int64 { return b[(len(b)-1)/2].off }
		for name, zeros := range map[string][2]int64{
			"the first batch":                    {batches[0][0].off, end(last(batches[0]))},
			"three batches":                      {batches[1][0].off, end(last(batches[3]))},
			"the end of one, and another":        {middle(batches[1]), end(last(batches[2]))},
			"a commit frame":                     {last(batches[2]).off, end(last(batches[2]))},
			"a commit frame, and half a batch":   {last(batches[1]).off, middle(batches[2])},
			"less than a frame":                  {middle(batches[2]) + 8, middle(batches[2]) + 16},
			"two batches, but for what is first": {batches[1][1].off, end(last(batches[2]))},
		} {
			what := fmt.Sprintf("%s: %s", segmentName(base), name)
			d := pristine.Copy()
			b := bytes.Clone(d.Bytes(segmentName(base)))
			clear(b[zeros[0]:zeros[1]])
			put(t, d, segmentName(base), b)
			if err := d.Sync(); err != nil {
				t.Fatal(err)
			}
			hurt, lost := uint64(0), uint64(0) // records: of batches that are not whole; that a repair cannot keep
			for _, batch := range batches {
				if batch[0].off < zeros[1] && end(last(batch)) > zeros[0] {
					hurt += uint64(len(batch) - 1)
				}
				for _, f := range batch[:len(batch)-1] {
					if f.off < zeros[1] && end(f) > zeros[0] {
						lost++
					}
				}
			}
			had := readAround(t, what, NewReader(faulty{d}, 0), records)
			s, err := Verify(faulty{d})
			if err != nil || s.Records != records-hurt || uint64(len(had)) != s.Records {
				t.Errorf("%s: %d records are read, Verify counts %d, %v; want %d", what, len(had), s.Records, err, records-hurt)
			}
			told := uint64(0)
			for _, p := range s.Problems {
				if p.From > 0 {
					told += p.To + 1 - p.From
				}
			}
			if told != hurt {
				t.Errorf("%s: Verify names %d records, %d are hurt: %+v", what, told, hurt, s.Problems)
			}
			if _, err := Repair(faulty{d}); err != nil {
				t.Fatal(err)
			}
			if s, err = Verify(faulty{d}); err != nil || s.Records != records-lost || s.Lost != lost {
				t.Errorf("%s: the repair keeps %d records and gives up %d, %v; want %d", what, s.Records, s.Lost, err, lost)
			}
		}
	}
}
