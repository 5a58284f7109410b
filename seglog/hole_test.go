package seglog

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/tallywheel/tallywheel/internal/fault"
)

// A sealed segment that was cut, and has its length again, with zeros behind the cut, has lost what
// one has that was cut: opening, Verify and readers name the same records, wherever they begin.
func TestZerosBehindACutAreNamed(t *testing.T) {
	const records = 900
	pristine := fault.New()
	cfg := small(faulty{pristine}, SyncBatch)
	cfg.SegmentBytes, cfg.BufferBytes = 1<<20, 32<<10
	l := open(t, cfg)
	for n := range uint64(records) {
		if _, err := l.Append(0, int64(n+1), bytes.Repeat(payload(n + 1)[:8], 500)); err != nil {
			t.Fatal(err)
		}
	}
	closeLog(t, l)
	bases := segmentsOf(t, pristine)
	if len(bases) < 4 {
		t.Fatalf("%d segments, want 4 at least", len(bases))
	}
	for i, base := range bases[:len(bases)-1] {
		for _, at := range []int64{headerBytes, 300_000, 500_000} {
			d := pristine.Copy()
			name := segmentName(base)
			zeroed(t, d, name, at, len(d.Bytes(name))-int(at))
			s, err := Verify(faulty{d})
			if err != nil || len(s.Problems) != 1 {
				t.Fatalf("segment %d, zeros from %d: %+v, %v", i, at, s.Problems, err)
			}
			from, to := s.Problems[0].From, s.Problems[0].To
			if from < base || from >= bases[i+1] || to != bases[i+1]-1 {
				t.Errorf("segment %d, zeros from %d: Verify names %d to %d", i, at, from, to)
			}
			for seq := uint64(1); seq <= records; seq += 7 {
				r := NewReader(faulty{d}, seq)
				names(t, r, from, to, seq)
				r = NewReader(faulty{d}, 0)
				if err := r.SeekTime(int64(seq)); err != nil {
					t.Fatal(err)
				}
				names(t, r, from, to, seq)
			}
			cfg.FS = faulty{d}
			for range 2 { // until a repair
				l, err := Open(cfg)
				if err != nil {
					t.Fatal(err)
				}
				m := l.Recovered().Missing
				if len(m) != 1 || m[0].From != from || m[0].To != to || l.Recovered().Last != records {
					t.Errorf("segment %d, zeros from %d: opening names %v, up to %d; want %d to %d", i, at, m,
						l.Recovered().Last, from, to)
				}
				closeLog(t, l)
			}
		}
	}
}

// names reads on to the end of the log, and checks that the records from to to are named on the
// way, as a gap or as damage, if they are behind the one that is asked for.
func names(t *testing.T, r *Reader, from, to, asked uint64) {
	t.Helper()
	defer r.Close()
	for {
		_, err := r.Next()
		var gap *GapError
		var damage *CorruptError
		switch {
		case err == io.EOF:
			if asked <= to {
				t.Errorf("from %d on nothing says that %d to %d are gone", asked, from, to)
			}
			return
		case errors.As(err, &gap):
			if gap.From < from || gap.From > max(asked, from) || gap.To != to {
				t.Errorf("from %d on the gap is %d to %d; %d to %d are gone", asked, gap.From, gap.To, from, to)
			}
			return
		case errors.As(err, &damage):
			return
		case err != nil:
			t.Fatal(err)
		}
	}
}
