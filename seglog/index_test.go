package seglog

import (
	"encoding/binary"
	"hash/crc32"
	"testing"
)

// An index whose checksum is right, and that cannot be one of its segment, is as one that is
// missing.
func TestIndexThatCannotBeOne(t *testing.T) {
	pristine := severalSegments(t, 400, true)
	for name, field := range map[string]struct {
		off   int
		value uint64
	}{
		"last sequence":                {16, 1<<64 - 1},
		"last one before the segment":  {16, 0},
		"offset before the file":       {32, 1<<64 - 4096},
		"offset in the header":         {32, 8},
		"offset between frames":        {32, headerBytes + 1},
		"sequence before the segment":  {40, 1},
		"sequence behind the last one": {40, 1 << 62},
	} {
		t.Run(name, func(t *testing.T) {
			d := pristine.Copy()
			bases := segmentsOf(t, d)
			for _, base := range bases[1:] {
				b := d.Bytes(indexName(base))
				binary.LittleEndian.PutUint64(b[field.off:], field.value)
				binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b[12:], castagnoli))
				put(t, d, indexName(base), b)
			}
			if err := d.Sync(); err != nil {
				t.Fatal(err)
			}
			for _, from := range []uint64{0, bases[1] + 5, bases[2] + 5, 399} {
				r := NewReader(faulty{d}, from)
				if rec, err := r.Next(); err != nil || rec.Seq != max(from, 1) {
					t.Errorf("from %d: record %d, %v", from, rec.Seq, err)
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}
			l := open(t, small(faulty{d}, SyncAlways))
			if r := l.Recovered(); r.Last != 400 || len(r.Missing) > 0 {
				t.Errorf("opening found %+v", r)
			}
			closeLog(t, l)
		})
	}
}
