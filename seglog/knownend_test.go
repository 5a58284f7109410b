package seglog

import (
	"errors"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/fault"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// appendTens appends n records, in batches of ten.
func appendTens(t *testing.T, l *Log, n uint64) {
	t.Helper()
	for i := range n {
		if _, err := l.Append(0, int64(i+1), payload(i+1)); err != nil {
			t.Fatal(err)
		}
		if i%10 == 9 {
			if err := l.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestDamageNearTheEnd damages one of the last batches of a log that was not closed. Nothing in the
// log says that it was durable, but its owner knows it: then it is damage, which a repair keeps to
// what is hurt, and not the end of a log whose rest goes when it is opened.
func TestDamageNearTheEnd(t *testing.T) {
	d := fault.New()
	cfg := small(faulty{d}, SyncNever)
	l := open(t, cfg)
	appendTens(t, l, 30)
	killed := d.Copy()
	if err := killed.Remove(durableFile); err != nil { // nor beside it
		t.Fatal(err)
	}
	closeLog(t, l)
	s, err := Verify(faulty{killed})
	if err != nil || s.Records != 30 {
		t.Fatalf("%+v, %v", s, err)
	}
	f, err := killed.Open(segmentName(1))
	if err != nil {
		t.Fatal(err)
	}
	sc, err := newScanner(f, 1)
	if err != nil {
		t.Fatal(err)
	}
	var last batch
	for b, err := sc.batch(); err == nil; b, err = sc.batch() {
		last = b
	}
	if last.first != 21 {
		t.Fatalf("the last batch is %d to %d", last.first, last.last)
	}
	flip(t, killed, segmentName(1), last.off+frameHeader+2)

	if s, err = Verify(faulty{killed}); err != nil || !s.Clean() {
		t.Errorf("without knowing more: %+v, %v; want a torn tail, which is harmless", s, err)
	}
	known := Extent{First: 1, Last: 30}
	if s, err = VerifyKnown(faulty{killed}, known); err != nil || s.Clean() {
		t.Errorf("known to be durable: %+v, %v; want damage", s, err)
	}
	cfg.FS, cfg.Expect = faulty{killed}, known
	if _, err := Open(cfg); !errors.As(err, new(*CorruptError)) {
		t.Fatalf("Open: %v; want a refusal", err)
	}
	if _, err := RepairKnown(faulty{killed}, known); err != nil {
		t.Fatal(err)
	}
	if l, err = Open(cfg); err != nil {
		t.Fatal(err)
	}
	defer closeLog(t, l)
	if m := l.Recovered().Missing; len(m) != 1 || m[0].From != 21 {
		t.Errorf("opening reports as missing %v", m)
	}
	if at := l.Position(); at.Stored != 30 {
		t.Errorf("the repaired log ends at %+v, want 30", at)
	}
	missing, records := holds(t, l.NewReader(0), 30)
	if len(missing) != 1 || records < 20 {
		t.Errorf("%d records of 30 are left, missing %v", records, missing)
	}
}

// TestEndThatWasStored has the end of a log gone that no record and no file tells of, but its owner
// knows that it was stored: it may have gone on from there, so none of the numbers that it can have
// given is given again. A log that has that record goes on right behind its own.
func TestEndThatWasStored(t *testing.T) {
	for name, c := range map[string]struct {
		harm   func(d *fault.Dir)
		known  Extent
		behind uint64 // the next record is behind that one
		gone   uint64 // the first that is missing; 0: none
	}{
		"all there":          {func(*fault.Dir) {}, Extent{Stored: 20}, 20, 0},
		"cut":                {cutAtSecond, Extent{Stored: 20}, 20 + mostRecords(16<<10), 11},
		"cut, and end known": {cutAtSecond, Extent{Stored: 20, End: 25}, 25, 11},
		"gone":               {removeFirst, Extent{Stored: 20}, 20 + mostRecords(16<<10), 1},
		"gone, and durable":  {removeFirst, Extent{Stored: 20, Last: 10}, 20 + mostRecords(16<<10), 1},
		"gone, and given":    {removeFirst, Extent{Given: 20}, 20, 1},
		"gone, and begun":    {removeFirst, Extent{Given: 20, Begun: true}, 20 + mostRecords(16<<10), 1},
	} {
		d := fault.New()
		cfg := small(faulty{d}, SyncNever)
		cfg.SegmentBytes = 16 << 10
		cfg.BufferBytes = 4 << 10
		l := open(t, cfg)
		appendTens(t, l, 20)
		killed := d.Copy()
		closeLog(t, l)
		c.harm(killed)
		cfg.FS, cfg.Expect = faulty{killed}, c.known
		for range 2 { // an opening that was killed, and told nobody, is begun anew
			l, err := Open(cfg)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			missing := l.Recovered().Missing
			if next := l.Position().Next; next != c.behind+1 {
				t.Errorf("%s: the next record is %d, want %d", name, next, c.behind+1)
			}
			if gone := c.gone > 0; len(missing) > 0 != gone ||
				gone && (missing[0].From != c.gone || missing[0].To != c.behind) {
				t.Errorf("%s: missing %+v, want from %d", name, missing, c.gone)
			}
			again := killed.Copy()
			closeLog(t, l)
			cfg.FS = faulty{again}
			killed = again
		}
	}
}

// TestUnsyncedNumbersAreNotGivenAgain has a log cut under a policy that does not sync each batch,
// and its process killed: the log's own note, or else its owner, says up to where numbers were
// given. None of them is given again, and what is gone is told once, apart from what was durable.
func TestUnsyncedNumbersAreNotGivenAgain(t *testing.T) {
	for name, c := range map[string]struct {
		known   Extent
		unnoted bool   // the log's note is gone, too
		durable uint64 // of what is gone, up to there
		given   uint64 // 0: nobody knows
	}{
		"noted":              {Extent{}, false, 0, 30},
		"noted, older sheet": {Extent{Given: 25}, false, 0, 30},
		"known":              {Extent{Given: 28}, true, 0, 28},
		"some was durable":   {Extent{Last: 20, Given: 28}, true, 20, 28},
		"nobody knows":       {Extent{}, true, 0, 0},
	} {
		d := fault.New()
		cfg := small(faulty{d}, SyncInterval)
		cfg.SyncInterval = time.Hour
		l := open(t, cfg)
		for i := range uint64(30) {
			if _, err := l.Append(0, int64(i+1), payload(i+1)); err != nil {
				t.Fatal(err)
			}
			if i%10 == 9 {
				testenv.Until(t, time.Minute, "they are stored", func() bool { return l.Stored() == i+1 })
			}
		}
		killed := d.Copy()
		closeLog(t, l)
		cutAtSecond(killed)
		if c.unnoted {
			if err := killed.Remove(durableFile); err != nil {
				t.Fatal(err)
			}
		}
		cfg.FS, cfg.Expect = faulty{killed}, c.known
		s, err := VerifyKnown(faulty{killed}, c.known)
		kept := s.Last
		if err != nil || kept == 0 || kept > 10 || s.Clean() != (c.given == 0) {
			t.Fatalf("%s: verify: %+v, %v", name, s, err)
		}
		if n := len(s.Problems); c.given > 0 && s.Problems[n-1].To != c.given {
			t.Errorf("%s: verify: %+v; want up to %d", name, s.Problems, c.given)
		}
		for range 2 { // an opening that was killed, and told nobody, is begun anew
			l, err := Open(cfg)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			r, next := l.Recovered(), l.Position().Next
			killed = killed.Copy()
			closeLog(t, l)
			if next != max(kept, c.given)+1 {
				t.Errorf("%s: record %d is next, want one behind %d and %d", name, next, kept, c.given)
			}
			if gone := len(r.Missing) > 0; gone != (c.durable > 0) ||
				gone && (r.Missing[0].From != kept+1 || r.Missing[0].To != c.durable) {
				t.Errorf("%s: missing %+v, want up to %d", name, r.Missing, c.durable)
			}
			if u := r.Unsynced; u.To != c.given || u.To > 0 && u.From != max(c.durable, kept)+1 {
				t.Errorf("%s: not synced: %+v; want up to %d", name, u, c.given)
			}
			cfg.FS = faulty{killed}
		}
		s, err = Verify(faulty{killed})
		if lost := max(kept, c.given) - kept; err != nil || !s.Clean() || s.Lost != lost || s.Records != kept {
			t.Errorf("%s: verify behind it: %+v, %v; want %d lost", name, s, err, lost)
		}
	}
}

// TestNewestGoneBehindAStart kills a log before it has written the index of the segment that it has
// just left, and kills the next start, too, with the newest segment gone: the number that follows
// was never given.
func TestNewestGoneBehindAStart(t *testing.T) {
	for _, policy := range []SyncPolicy{SyncAlways, SyncNever} {
		d := fault.New()
		l := open(t, small(faulty{d}, policy))
		fill := func(l *Log, upTo uint64) (killed *fault.Dir) {
			for next := l.Position().Next; next <= upTo; next++ {
				if _, err := l.Append(0, int64(next), payload(next)); err != nil {
					t.Fatal(err)
				}
			}
			testenv.Until(t, time.Minute, "records are stored", func() bool { return l.Position().Stored == upTo })
			killed = d.Copy()
			closeLog(t, l)
			return killed
		}
		d = fill(l, 900)
		bases := segmentsOf(t, d)
		newest := bases[len(bases)-1]
		if err := d.Remove(indexName(bases[len(bases)-2])); err != nil {
			t.Fatal(err)
		}
		killed := fill(open(t, small(faulty{d}, policy)), 901)
		if got := segmentsOf(t, killed); got[len(got)-1] != newest {
			t.Fatalf("segments %v; want that 901 is in the segment %d", got, newest)
		}
		if err := killed.Remove(segmentName(newest)); err != nil {
			t.Fatal(err)
		}
		l = openHarmed(t, small(faulty{killed}, policy))
		if m, next := l.Recovered().Missing, l.Position().Next; len(m) != 1 || m[0].From != newest || next <= 901 {
			t.Errorf("missing %+v, and record %d is next; 901 were given", m, next)
		}
		closeLog(t, l)
	}
}

// cutAtSecond cuts the first segment behind its first batch.
func cutAtSecond(d *fault.Dir) {
	f, err := d.Open(segmentName(1))
	if err != nil {
		panic(err)
	}
	sc, err := newScanner(f, 1)
	if err != nil {
		panic(err)
	}
	if _, err := sc.batch(); err != nil {
		panic(err)
	}
	if err := d.Cut(segmentName(1), sc.off); err != nil {
		panic(err)
	}
}

func removeFirst(d *fault.Dir) {
	if err := d.Remove(segmentName(1)); err != nil {
		panic(err)
	}
}
