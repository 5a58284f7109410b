package seglog

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/fault"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// batchesOf lists where the batches of a segment begin, and where the last one ends.
func batchesOf(t *testing.T, d *fault.Dir, base uint64) (offs []int64) {
	t.Helper()
	f, err := d.Open(segmentName(base))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sc, err := newScanner(f, base)
	if err != nil {
		t.Fatal(err)
	}
	for {
		offs = append(offs, sc.off)
		if _, err := sc.batch(); err != nil {
			return offs
		}
	}
}

// Somebody cuts the segment that is written to, a batch is written behind the cut, and the process
// is killed before the watch has seen that: the log opens, gives no number again, tells the damage,
// and leaves the segment as it is until a repair. It wanted the repair before it opened.
func TestCutAndWrittenBehindAndKilled(t *testing.T) {
	for _, at := range []int64{0, 8, 100} { // behind the begin of the eighth batch
		d := fault.New()
		found := &findings{}
		cfg := small(faulty{d}, SyncAlways)
		l := open(t, cfg)
		appendUpTo(t, l, 25)
		killed := d.Copy()
		closeLog(t, l)
		offs := batchesOf(t, killed, 1)
		from := offs[7] + at
		zeroed(t, killed, segmentName(1), from, int(offs[20]-from))
		was := killed.Bytes(segmentName(1))

		cfg.FS, cfg.OnChecked = faulty{killed}, found.checked
		for next := uint64(26); next < 30; next += 2 { // the second one finds what the first has left
			l = open(t, cfg)
			if r := l.Recovered(); r.Last != next-1 || len(r.Missing) > 0 || r.CutAt != "" {
				t.Fatalf("%d: %+v; want the end %d", at, r, next-1)
			}
			unused := cfg // killed before it had written anything
			unused.FS, unused.OnChecked = faulty{killed.Copy()}, nil
			u := open(t, unused)
			if r := u.Recovered(); r.Last != next-1 || len(r.Missing) > 0 {
				t.Errorf("%d: behind an opening that was killed: %+v", at, r)
			}
			closeLog(t, u)
			appendUpTo(t, l, next+1)
			again := killed.Copy()
			testenv.Until(t, patience, "the damage is told", func() bool { return len(found.problems()) > 0 })
			if p := found.problems()[0]; p.Segment != segmentName(1) || p.From != 8 || p.To != 20 {
				t.Errorf("%d: told %+v", at, p)
			}
			closeLog(t, l)
			cfg.FS, cfg.Suspect = faulty{again}, []uint64{1}
			killed, found = again, &findings{}
			cfg.OnChecked = found.checked
		}
		if b := killed.Bytes(segmentName(1)); !slices.Equal(b, was) {
			t.Errorf("%d: the segment is not what it was", at)
		}
		s, err := Verify(cfg.FS)
		if err != nil || s.Clean() || len(s.Problems) != 1 || s.Records != 29-13 {
			t.Errorf("%d: %+v, %v", at, s, err)
		}
		if _, err := Repair(cfg.FS); err != nil {
			t.Fatal(err)
		}
		r := NewReader(cfg.FS, 1)
		var have []uint64
		for {
			rec, err := r.Next()
			if gap := (*GapError)(nil); errors.As(err, &gap) {
				continue
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			have = append(have, rec.Seq)
		}
		r.Close()
		if len(have) != 16 || have[6] != 7 || have[7] != 21 || have[15] != 29 {
			t.Errorf("%d: a repair keeps %v", at, have)
		}
	}
}

// Where the cut begins with the first batch of the newest segment, what its later batches know to
// be durable says nothing of the segment before it, which is whole. That was called damaged, and
// the log wanted a repair before it opened.
func TestCutAtTheFirstBatchAndKilled(t *testing.T) {
	for name, policy := range policies {
		for _, segments := range []int{1, 2, 3} {
			for _, at := range []int64{0, 8, 100} { // behind the begin of the batch
				t.Run(fmt.Sprintf("%s, %d segments, %d", name, segments, at), func(t *testing.T) {
					testCutAtTheFirstBatch(t, policy, segments, at)
				})
			}
		}
	}
}

func testCutAtTheFirstBatch(t *testing.T, policy SyncPolicy, segments int, at int64) {
	d := fault.New()
	cfg := small(faulty{d}, policy)
	cfg.SyncInterval = time.Hour // what is durable is what the test has synced
	l := open(t, cfg)
	for last := uint64(1); len(segmentsOf(t, d)) < segments; last++ {
		appendUpTo(t, l, last)
	}
	for range 5 { // batches
		appendUpTo(t, l, l.Position().Next)
		if err := l.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	last := l.Position().Next - 1
	killed := d.Copy()
	closeLog(t, l)
	all := segmentsOf(t, killed)
	base := all[len(all)-1]
	offs := batchesOf(t, killed, base)
	from, to := offs[0]+at, offs[len(offs)-3] // two batches are left
	zeroed(t, killed, segmentName(base), from, int(to-from))
	was := killed.Bytes(segmentName(base))

	found := &findings{}
	cfg.FS, cfg.OnChecked = faulty{killed}, found.checked
	l = open(t, cfg)
	if r := l.Recovered(); r.Last != last || r.CutAt != "" || len(r.Torn)+len(r.Damaged) > 0 {
		t.Errorf("%+v; want the end %d", r, last)
	}
	if bases := segmentsOf(t, killed); len(bases) != segments+1 || bases[segments] != last+1 {
		t.Errorf("segments %v; want one more, from %d on", bases, last+1)
	}
	appendUpTo(t, l, last+3)
	testenv.Until(t, patience, "the damage is told", func() bool { return len(found.problems()) > 0 })
	if p := found.problems()[0]; p.Segment != segmentName(base) || p.From != base || p.To != last-2 {
		t.Errorf("told %+v; want %d to %d", p, base, last-2)
	}
	closeLog(t, l)
	if b := killed.Bytes(segmentName(base)); !slices.Equal(b, was) {
		t.Error("the segment is not what it was")
	}
	s, err := Verify(cfg.FS)
	if err != nil || len(s.Problems) != 1 || s.Problems[0].From != base || s.Problems[0].To != last-2 {
		t.Errorf("%+v, %v", s.Problems, err)
	}
	cfg.OnChecked = nil
	l = open(t, cfg)
	if r := l.Recovered(); !r.Clean || r.Last != last+3 {
		t.Errorf("behind an end in order: %+v", r)
	}
	closeLog(t, l)
}

// Other damage in the newest segment, and zeros with damage behind them, keep the log from opening
// as before.
func TestDamageIsNoCut(t *testing.T) {
	for name, harm := range map[string]func(d *fault.Dir, offs []int64){
		"a bit": func(d *fault.Dir, offs []int64) { flip(t, d, segmentName(1), offs[7]+40) },
		"a bit before data of zeros": func(d *fault.Dir, offs []int64) {
			flip(t, d, segmentName(1), offs[25]+4)
		},
		"zeros within a batch": func(d *fault.Dir, offs []int64) {
			zeroed(t, d, segmentName(1), offs[7], int(offs[8]-offs[7]-commitBytes/2))
		},
		"zeros, and a bit behind": func(d *fault.Dir, offs []int64) {
			zeroed(t, d, segmentName(1), offs[7], int(offs[12]-offs[7]))
			flip(t, d, segmentName(1), offs[20]+40)
		},
	} {
		d := fault.New()
		cfg := small(faulty{d}, SyncAlways)
		l := open(t, cfg)
		appendUpTo(t, l, 25)
		if _, err := l.Append(0, 1, make([]byte, 300)); err != nil {
			t.Fatal(err)
		}
		appendUpTo(t, l, 30)
		killed := d.Copy()
		closeLog(t, l)
		harm(killed, batchesOf(t, killed, 1))
		cfg.FS = faulty{killed}
		if _, err := Open(cfg); !errors.As(err, new(*CorruptError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
