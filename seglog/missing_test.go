package seglog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/fault"
)

// segmentsOf lists the segments of a directory.
func segmentsOf(t *testing.T, d *fault.Dir) []uint64 {
	t.Helper()
	bases, err := segmentBases(faulty{d})
	if err != nil {
		t.Fatal(err)
	}
	return bases
}

// severalSegments is a directory with records in several segments, all of them durable; closed says
// that the log was closed in order.
func severalSegments(t *testing.T, records uint64, closed bool) *fault.Dir {
	t.Helper()
	d := fault.New()
	l := open(t, small(faulty{d}, SyncAlways))
	for n := range records {
		if _, err := l.Append(0, int64(n+1), payload(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	killed := d.Copy()
	closeLog(t, l)
	if closed {
		return d
	}
	return killed
}

// holds reads the whole log and checks that what is there is right, and that every sequence is
// there or in a gap.
func holds(t *testing.T, r *Reader, last uint64) (missing []GapError, records uint64) {
	t.Helper()
	defer r.Close()
	next := uint64(0)
	for {
		rec, err := r.Next()
		var gap *GapError
		switch {
		case err == io.EOF:
			if next != last+1 {
				t.Errorf("the log ends before record %d, want %d", next, last+1)
			}
			return missing, records
		case errors.As(err, &gap):
			if next > 0 && gap.From != next {
				t.Errorf("gap from %d, want %d", gap.From, next)
			}
			missing, next = append(missing, *gap), gap.To+1
		case err != nil:
			t.Fatal(err)
		default:
			if next > 0 && rec.Seq != next || !bytes.Equal(rec.Data, payload(rec.Seq)) {
				t.Fatalf("record %d, want %d, or it carries something else", rec.Seq, next)
			}
			next, records = rec.Seq+1, records+1
		}
	}
}

// harm is something that somebody does to the files of a log while it is not open.
type harm struct {
	killed bool
	only   bool // the log has one segment
	harm   func(t *testing.T, d *fault.Dir, bases []uint64)
	known  Extent // of Config.Expect
	blind  bool   // Verify, which is not told what to expect, cannot know
	most   bool   // how much is missing cannot be known
	fresh  bool   // the log begins anew
	said   bool   // the log has said how far it was durable; else that is gone, too
}

// log is the log that the harm is done to, with that many records, all of them durable; some are
// told where there is one segment only.
func (h harm) log(t *testing.T, records uint64) (d *fault.Dir, n uint64) {
	t.Helper()
	if h.only {
		records = 50
	}
	d = severalSegments(t, records, !h.killed)
	if !h.said {
		if err := d.Remove(durableFile); err != nil {
			t.Fatal(err)
		}
	}
	h.harm(t, d, segmentsOf(t, d))
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	return d, records
}

// harms are those that take durable records of a log with that many.
func harms(records uint64) map[string]harm {
	cut := func(size int64) func(t *testing.T, d *fault.Dir, b []uint64) {
		return func(t *testing.T, d *fault.Dir, b []uint64) {
			if err := d.Cut(segmentName(b[len(b)-1]), size); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(t *testing.T, d *fault.Dir, index bool, bases ...uint64) {
		t.Helper()
		for _, base := range bases {
			if err := d.Remove(segmentName(base)); err != nil {
				t.Fatal(err)
			}
			if index {
				_ = d.Remove(indexName(base))
			}
		}
	}
	gone := func(t *testing.T, d *fault.Dir, b []uint64) { remove(t, d, true, b...) }
	return map[string]harm{
		"newest": {harm: func(t *testing.T, d *fault.Dir, b []uint64) { remove(t, d, false, b[len(b)-1]) }},
		"newest and index": {
			harm: func(t *testing.T, d *fault.Dir, b []uint64) { remove(t, d, true, b[len(b)-1]) },
			most: true,
		},
		"newest two": {harm: func(t *testing.T, d *fault.Dir,
			b []uint64,
		) {
			remove(t, d, false, b[len(b)-2:]...)
		}},
		"newest two, index": {harm: func(t *testing.T, d *fault.Dir,
			b []uint64,
		) {
			remove(t, d, true, b[len(b)-2:]...)
		}, most: true},
		"newest, killed": {
			killed: true,
			harm:   func(t *testing.T, d *fault.Dir, b []uint64) { remove(t, d, false, b[len(b)-1]) }, most: true,
		},
		"newest, killed, known": {
			killed: true, harm: func(t *testing.T, d *fault.Dir, b []uint64) { remove(t, d, false, b[len(b)-1]) },
			known: Extent{Last: records}, most: true,
		},
		"newest, killed, end known": {
			killed: true, harm: func(t *testing.T, d *fault.Dir, b []uint64) { remove(t, d, false, b[len(b)-1]) },
			known: Extent{Last: records - 3, End: records}, most: true,
		},
		"newest, killed, all known": {
			killed: true, harm: func(t *testing.T, d *fault.Dir, b []uint64) { remove(t, d, false, b[len(b)-1]) },
			known: Extent{Last: records, End: records},
		},
		"newest, killed, older books": {
			killed: true, harm: func(t *testing.T, d *fault.Dir, b []uint64) { remove(t, d, false, b[len(b)-1]) },
			known: Extent{Last: 9, End: 9}, most: true,
		},
		"only one, header, end known": {
			only: true, harm: cut(100), killed: true, known: Extent{Last: 47, End: 50}, most: true, fresh: true,
		},
		"all": {harm: func(t *testing.T, d *fault.Dir, b []uint64) { remove(t, d, false, b...) }, fresh: true},
		"all, known": {
			harm:  func(t *testing.T, d *fault.Dir, b []uint64) { remove(t, d, true, b...) },
			known: Extent{First: 1, Last: records}, blind: true, fresh: true,
		},
		"first": {harm: func(t *testing.T, d *fault.Dir, b []uint64) { remove(t, d, false, b[0]) }},
		"first, known": {
			harm:  func(t *testing.T, d *fault.Dir, b []uint64) { remove(t, d, true, b[0]) },
			known: Extent{First: 1, Last: records}, blind: true,
		},
		"all, killed, known": {
			killed: true, harm: func(t *testing.T, d *fault.Dir, b []uint64) { remove(t, d, true, b...) },
			known: Extent{Last: records},
			blind: true, fresh: true,
		},
		"cut":               {harm: cut(headerBytes + 3000)},
		"cut to its header": {harm: cut(headerBytes)},
		"cut, killed, known": {
			killed: true, known: Extent{Last: records}, blind: true,
			harm: cut(headerBytes + 3000),
		},
		"cut, version 1": {harm: func(t *testing.T, d *fault.Dir,
			b []uint64,
		) {
			cut(headerBytes+3000)(t, turnOld(t, d), b)
		}},
		"cut in its header":         {harm: cut(headerBytes - 1)},
		"cut in its header, killed": {harm: cut(200), killed: true, most: true},
		"cut to nothing":            {harm: cut(0)},
		"cut to nothing, killed":    {harm: cut(0), killed: true, most: true},
		"only one, cut":             {only: true, harm: cut(headerBytes + 3000)},
		"only one, header":          {only: true, harm: cut(2500), fresh: true},
		"only one, header, killed":  {only: true, harm: cut(100), killed: true, most: true, fresh: true},
		"only one, nothing, known": {
			only: true, harm: cut(0), killed: true, known: Extent{Last: 50}, most: true,
			fresh: true,
		},
		"only one, gone, killed": {
			only: true, killed: true, known: Extent{Last: 47, Begun: true}, blind: true, most: true, fresh: true,
			harm: func(t *testing.T, d *fault.Dir, b []uint64) { remove(t, d, false, b...) },
		},
		"only one, gone, killed in its first second": {
			only: true, killed: true, known: Extent{Begun: true}, blind: true, most: true, fresh: true,
			harm: func(t *testing.T, d *fault.Dir, b []uint64) { remove(t, d, false, b...) },
		},
		"only one, gone, closed, and older books": {
			only: true, known: Extent{Last: 47, Begun: true}, fresh: true,
			harm: func(t *testing.T, d *fault.Dir, b []uint64) { remove(t, d, false, b...) },
		},
		"all, killed, begun": {
			killed: true, known: Extent{Last: records - 3, Begun: true}, blind: true, most: true, fresh: true,
			harm: func(t *testing.T, d *fault.Dir, b []uint64) { remove(t, d, true, b...) },
		},
		"cut, killed": {killed: true, said: true, harm: cut(headerBytes + 3000)},
		"cut, killed, older books": {
			killed: true, said: true, known: Extent{Last: 9, Begun: true}, harm: cut(headerBytes + 3000),
		},
		"only one, cut, killed":         {only: true, killed: true, said: true, harm: cut(headerBytes + 3000)},
		"only one, to nothing, killed":  {only: true, killed: true, said: true, harm: cut(0), most: true, fresh: true},
		"only one, and nobody knows it": {only: true, killed: true, said: true, harm: gone, fresh: true},
		"only one, gone": {
			only: true,
			harm: func(t *testing.T, d *fault.Dir, b []uint64) { remove(t, d, false, b...) }, fresh: true,
		},
	}
}

// What somebody took or cut is told of by Verify and by Open, its sequences are not given again,
// and all else can be read.
func TestMissingIsToldAndItsNumbersAreNotGivenAgain(t *testing.T) {
	const records = 900
	for name, c := range harms(records) {
		t.Run(name, func(t *testing.T) {
			d, records := c.log(t, records)
			s, err := Verify(faulty{d})
			if err != nil || s.Clean() != c.blind {
				t.Errorf("Verify: %+v, %v", s, err)
			}
			if s, err = VerifyKnown(faulty{d}, c.known); err != nil || s.Clean() {
				t.Errorf("VerifyKnown: %+v, %v", s, err)
			}
			cfg := small(faulty{d}, SyncAlways)
			cfg.Expect = c.known
			l, err := Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			r := l.Recovered()
			if len(r.Missing) != 1 || r.Missing[0].AtMost != c.most || r.Clean {
				t.Fatalf("Recovered gives %+v", r)
			}
			m := r.Missing[0]
			next := l.Position().Next
			if gone := s.Problems[len(s.Problems)-1]; c.known.End > 9 &&
				(next != records+1 || gone.To != records || gone.AtMost != c.most) {
				t.Errorf("record %d is next, and Verify says %+v; the last that was given is known: %d", next, gone,
					records)
			}
			if next <= records || !c.most && next != records+1 {
				t.Fatalf("record %d is next: that number had been given", next)
			}
			last := next + 300
			for ; next <= last; next++ {
				if seq, err := l.Append(0, int64(next), payload(next)); err != nil || seq != next {
					t.Fatal(seq, err)
				}
			}
			gaps, whole := holds(t, l.NewReader(2), last)
			if c.fresh {
				if m.To < records || !c.most && m.To != records || whole != 301 {
					t.Errorf("%v, %d records", m, whole)
				}
			} else if lost := m.To - m.From + 1; whole != last-max(1, m.From-1)+1-lost+max(m.From-2, 0) &&
				len(gaps) != 1 {
				t.Errorf("%v, but the gaps are %v and %d records are there", m, gaps, whole)
			}
			closeLog(t, l)
			l = open(t, small(faulty{d}, SyncAlways)) // it is told once
			closeLog(t, l)
			if s, err := Verify(faulty{d}); err != nil || !s.Clean() {
				t.Errorf("Verify after it was told: %+v, %v", s, err)
			}
		})
	}
}

// However the newest segment is cut after a clean end: what is before the cut is kept, also of the
// batch that was cut.
func TestCutKeepsWhatIsBeforeIt(t *testing.T) {
	pristine := severalSegments(t, 300, true)
	bases := segmentsOf(t, pristine)
	name := segmentName(bases[len(bases)-1])
	used, err := lastNonZero(bytes.NewReader(pristine.Bytes(name)), 0, 32<<10)
	if err != nil {
		t.Fatal(err)
	}
	for size := int64(headerBytes); size < used; size += 168 {
		d := pristine.Copy()
		if err := d.Cut(name, size); err != nil {
			t.Fatal(err)
		}
		if s, err := Verify(faulty{d}); err != nil || s.Clean() && s.Records < 300 {
			t.Fatalf("cut to %d: Verify: %+v, %v", size, s, err)
		}
		l, err := Open(small(faulty{d}, SyncAlways))
		if err != nil {
			t.Fatalf("cut to %d: %v", size, err)
		}
		if next := l.Position().Next; next != 301 {
			t.Fatalf("cut to %d: record %d is next", size, next)
		}
		lost := uint64(0)
		for _, m := range l.Recovered().Missing {
			lost += m.To - m.From + 1
		}
		if _, whole := holds(t, l.NewReader(0), 300); whole+lost != 300 || whole < uint64(bases[len(bases)-1])-1 {
			t.Fatalf("cut to %d: %d records, %d lost", size, whole, lost)
		}
		closeLog(t, l)
	}
	// The commit frame alone is gone: no record is.
	d := pristine.Copy()
	if err := d.Cut(name, used&^7-commitBytes-8); err != nil {
		t.Fatal(err)
	}
	l, err := Open(small(faulty{d}, SyncAlways))
	if err != nil || len(l.Recovered().Missing) > 0 || l.Position().Next != 301 {
		t.Errorf("without its last commit frame: %v, %+v", err, l.Recovered())
	}
	closeLog(t, l)
}

// Who looks from outside at a log whose newest segment is cut, in whatever place, is told the same
// as the next opening finds: by the index of a clean end, or by what the owner knows.
func TestOutsideSaysOfACutWhatOpeningFinds(t *testing.T) {
	const records = 60
	for name, known := range map[string]Extent{"index": {}, "books": {Last: records}} {
		pristine := fault.New()
		cfg := small(faulty{pristine}, SyncAlways)
		cfg.BatchRecords, cfg.BatchDelay, cfg.SegmentBytes = records/2, time.Hour, 1<<20 // two batches
		l := open(t, cfg)
		for n := range uint64(records) {
			if _, err := l.Append(0, int64(n+1), payload(n+1)); err != nil {
				t.Fatal(err)
			}
		}
		for l.Position().Durable < records {
			runtime.Gosched()
		}
		if name == "books" { // it is killed
			pristine = pristine.Copy()
		}
		closeLog(t, l)
		segment := segmentName(segmentsOf(t, pristine)[0])
		used, err := lastNonZero(bytes.NewReader(pristine.Bytes(segment)), 0, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for size := int64(headerBytes); size < used; size += 264 {
			d := pristine.Copy()
			if err := d.Cut(segment, size); err != nil {
				t.Fatal(err)
			}
			s, err := VerifyKnown(faulty{d}, known)
			if err != nil {
				t.Fatal(err)
			}
			outside, damage := readOut(t, faulty{d}, known)
			l, err := Open(Config{FS: faulty{d}, SegmentBytes: 1 << 20, Expect: known})
			if err != nil {
				t.Fatalf("%s, cut to %d: %v", name, size, err)
			}
			var gone, found uint64
			for _, m := range l.Recovered().Missing {
				gone += m.To - m.From + 1
			}
			for _, p := range s.Problems {
				if !p.Harmless {
					found += p.To - p.From + 1
				}
				if strings.Contains(p.What, "nothing says that it was durable") {
					t.Errorf("%s, cut to %d: %s", name, size, p.What)
				}
			}
			if found != gone || s.Records != records-gone || outside != records-gone || damage != (gone > 0) {
				t.Fatalf("%s, cut to %d: opening misses %d of %d; Verify: %+v; a reader has %d, and an error: %v",
					name, size, gone, records, s, outside, damage)
			}
			closeLog(t, l)
		}
	}
}

// readOut reads a log from outside: how many records there are, and whether it ends in an error.
func readOut(t *testing.T, dir FS, known Extent) (records uint64, damage bool) {
	t.Helper()
	r := NewReader(dir, 0)
	r.Expect(known)
	defer r.Close()
	for {
		rec, err := r.Next()
		if err == io.EOF {
			if err = r.End(); err == nil {
				rec, err = r.Next()
			}
		}
		corrupt := (*CorruptError)(nil)
		switch {
		case err == nil:
			if records++; rec.Seq != records || !bytes.Equal(rec.Data, payload(rec.Seq)) {
				t.Fatalf("record %d comes as number %d, or it carries something else", rec.Seq, records)
			}
		case err == io.EOF:
			return records, false
		case errors.As(err, &corrupt):
			return records, true
		default:
			t.Fatal(err)
		}
	}
}

// A repair that had to give up the end of the newest segment leaves a hole there: those numbers are
// not given again.
func TestRepairedEndKeepsItsNumbers(t *testing.T) {
	d := severalSegments(t, 50, true)
	bases := segmentsOf(t, d)
	name := segmentName(bases[len(bases)-1])
	used, err := lastNonZero(bytes.NewReader(d.Bytes(name)), 0, 32<<10)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Flip(name, used&^7-2*commitBytes-20, 3); err != nil { // in the last record
		t.Fatal(err)
	}
	if _, err := Repair(faulty{d}); err != nil {
		t.Fatal(err)
	}
	l := openRepaired(t, small(faulty{d}, SyncAlways))
	if next := l.Position().Next; next != 51 {
		t.Errorf("record %d is next, want 51", next)
	}
	closeLog(t, l)
}

// A segment in the middle is gone: Open says so, and goes on, for what is behind is whole, whether
// the log knew that to be durable or not; and readers meet a gap.
func TestSegmentInTheMiddleIsGone(t *testing.T) {
	for _, policy := range []SyncPolicy{SyncAlways, SyncInterval} {
		d := fault.New()
		cfg := small(faulty{d}, policy)
		cfg.SyncInterval = time.Hour
		l := open(t, cfg)
		for n := range uint64(900) {
			if _, err := l.Append(0, int64(n+1), payload(n+1)); err != nil {
				t.Fatal(err)
			}
		}
		for l.Position().Stored < 900 {
			runtime.Gosched()
		}
		killed := d.Copy()
		closeLog(t, l)
		for i, d := range []*fault.Dir{d, killed} {
			bases := segmentsOf(t, d)
			if err := d.Remove(segmentName(bases[1])); err != nil {
				t.Fatal(err)
			}
			want := []GapError{{bases[1], bases[2] - 1, GapDamage}}
			for range 2 { // it is said again until it is repaired
				l, err := Open(small(faulty{d}, policy))
				if err != nil {
					t.Fatal(i, err)
				}
				r := l.Recovered()
				if m := r.Missing; len(m) != 1 || m[0].From != bases[1] || m[0].To != bases[2]-1 || len(r.Torn) > 0 ||
					l.Position().Next != 901 {
					t.Errorf("%d: %+v; want %v missing", i, r, want)
				}
				if gaps, _ := holds(t, l.NewReader(0), 900); !slices.Equal(gaps, want) {
					t.Errorf("%d: the gaps are %v, want %v", i, gaps, want)
				}
				closeLog(t, l)
			}
			if gaps, _ := holds(t, NewReader(faulty{d}, 0), 900); !slices.Equal(gaps, want) {
				t.Errorf("%d: from outside the gaps are %v, want %v", i, gaps, want)
			}
			if s, err := Verify(faulty{d}); err != nil || s.Clean() ||
				!strings.Contains(s.Problems[0].What, "is gone") {
				t.Errorf("%d: Verify: %+v, %v", i, s, err)
			}
			if _, err := Repair(faulty{d}); err != nil {
				t.Fatal(err)
			}
			closeLog(t, openRepaired(t, small(faulty{d}, policy)))
			want[0].Cause = GapNoted
			if gaps, _ := holds(t, NewReader(faulty{d}, 0), 900); !slices.Equal(gaps, want) {
				t.Errorf("%d: after the repair the gaps are %v", i, gaps)
			}
		}
	}
}

// What is damaged is not gone: an opening that has no index of a segment, or takes it for one that
// was cut, finds its end behind the damage. The index is made anew where all can be read.
func TestDamageIsNotMissing(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, d *fault.Dir, base uint64){
		"index": func(t *testing.T, d *fault.Dir, base uint64) {},
		"no index": func(t *testing.T, d *fault.Dir, base uint64) {
			if err := d.Remove(indexName(base)); err != nil {
				t.Fatal(err)
			}
		},
		"empty index": func(t *testing.T, d *fault.Dir, base uint64) {
			if err := d.Cut(indexName(base), 0); err != nil {
				t.Fatal(err)
			}
		},
	} {
		for _, larger := range []int64{1, 4} { // a log whose segments are larger now: these may have been cut
			t.Run(fmt.Sprintf("%s, segments %d times as large", name, larger), func(t *testing.T) {
				d := severalSegments(t, 900, true)
				base := segmentsOf(t, d)[1]
				prepare(t, d, base)
				cfg := small(faulty{d}, SyncAlways)
				cfg.SegmentBytes *= larger
				closeLog(t, open(t, cfg))
				if x, _, err := readIndex(faulty{d}, base); err != nil || x == nil {
					t.Errorf("the index was not made anew: %v", err)
				}
				prepare(t, d, base)
				flip(t, d, segmentName(base), headerBytes+1000)
				l := open(t, cfg)
				defer closeLog(t, l)
				if got := l.Recovered(); len(got.Missing) > 0 {
					t.Errorf("one bit is wrong, and the start says %v", got.Missing)
				}
			})
		}
	}
}
