package seglog

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/tallywheel/tallywheel/internal/fault"
)

// interruption is how the opening of a log ends early.
type interruption struct {
	name  string
	err   error
	short int  // bytes of a write that are written all the same
	last  bool // nothing works any more from there on, as for a process that is killed
}

var interruptions = []interruption{
	{name: "EIO", err: syscall.EIO},
	{name: "ENOSPC", err: syscall.ENOSPC, short: 100},
	{name: "killed", err: syscall.EIO, short: 50, last: true},
}

// openUntil opens a log whose disk fails at its n-th operation. It reports whether there was one.
func openUntil(d *fault.Dir, cfg Config, n int, end interruption) (l *Log, err error, met bool) {
	at := 0
	d.SetInject(func(fault.Op, string) (int, error) {
		if at++; at < n || at > n && !end.last {
			return 0, nil
		}
		met = true
		return end.short, end.err
	})
	defer d.SetInject(nil)
	cfg.FS = faulty{d}
	l, err = Open(cfg)
	return l, err, met
}

// dieAt opens a log for which nothing works any more from the n-th operation of its disk on, and
// reports whether there was one.
func dieAt(d *fault.Dir, cfg Config, n int) (met bool) {
	l, err, met := openUntil(d, cfg, n, interruption{err: syscall.EIO, last: true})
	if err == nil {
		_ = l.Close()
	}
	return met
}

// extents is what an opening says, without its words.
func extents(all []Missing) (out []Missing) {
	for _, m := range all {
		m.What = ""
		out = append(out, m)
	}
	return out
}

// An opening that fails, is killed, or loses its power at any of its operations keeps nothing from
// the next one: that names the same loss, and goes on with the same number.
func TestLossIsNamedHoweverAnOpeningEnds(t *testing.T) {
	const records = 500
	for name, c := range harms(records) {
		t.Run(name, func(t *testing.T) {
			harmed, _ := c.log(t, records)
			cfg := small(nil, SyncAlways)
			cfg.Expect = c.known
			d := harmed.Copy()
			cfg.FS = faulty{d}
			l, err := Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			want, next := extents(l.Recovered().Missing), l.Position().Next
			closeLog(t, l)
			check := func(how string, d *fault.Dir) {
				t.Helper()
				cfg.FS = faulty{d}
				l, err := Open(cfg)
				if err != nil {
					t.Fatalf("%s: %v", how, err)
				}
				if got := extents(l.Recovered().Missing); !slices.Equal(got, want) || l.Position().Next != next {
					t.Fatalf("%s: %+v is missing, %d is next; want %+v, %d", how, l.Recovered().Missing,
						l.Position().Next, want, next)
				}
				closeLog(t, l)
			}
			for _, end := range interruptions {
				for n := 1; ; n++ {
					how := fmt.Sprintf("%s at operation %d", end.name, n)
					d := harmed.Copy()
					l, err, met := openUntil(d, cfg, n, end)
					if !met {
						closeLog(t, l)
						break
					}
					if err == nil {
						if got := extents(l.Recovered().Missing); !slices.Equal(got, want) {
							t.Fatalf("%s: opened, %+v is missing, want %+v", how, got, want)
						}
						_ = l.Close()
						continue
					}
					check(how+", then the power is cut", d.Crash(uint64(n)))
					check(how, d)
				}
			}
		})
	}
}

// A segment that somebody removed just before may come back, if the power is cut during the
// opening: the log is whole then. What that opening has written is not in its way.
func TestRemovedSegmentsThatComeBack(t *testing.T) {
	const records = 500
	whole := severalSegments(t, records, true)
	bases := segmentsOf(t, whole)
	for removed := 1; removed <= len(bases); removed++ {
		back := 0
		for n, met := 1, true; met; n++ {
			d, cfg := whole.Copy(), small(nil, SyncAlways)
			for _, base := range bases[len(bases)-removed:] {
				if err := d.Remove(segmentName(base)); err != nil {
					t.Fatal(err)
				}
			}
			met = dieAt(d, cfg, n)
			for seed := range uint64(8) {
				cfg.FS = faulty{d.Crash(seed)}
				l, err := Open(cfg)
				if err != nil {
					t.Fatalf("the newest %d of %d removed, the power cut at operation %d: %v", removed, len(bases), n,
						err)
				}
				if len(l.Recovered().Missing) == 0 {
					back++
					holds(t, l.NewReader(0), records)
					if s, err := Verify(cfg.FS); err != nil || len(s.Problems) > 0 {
						t.Fatalf("the newest %d of %d removed, the power cut at operation %d: %+v, %v", removed,
							len(bases), n, s.Problems, err)
					}
				}
				if next := l.Position().Next; next != records+1 {
					t.Errorf("the newest %d of %d removed, the power cut at operation %d: %d is next", removed,
						len(bases), n, next)
				}
				closeLog(t, l)
			}
		}
		if back == 0 {
			t.Errorf("the newest %d of %d removed: they never come back", removed, len(bases))
		}
	}
}

// An owner that cannot keep what was found is told again.
func TestOwnerIsToldUntilItHasKeptIt(t *testing.T) {
	for name, c := range harms(500) {
		d, _ := c.log(t, 500)
		cfg := small(faulty{d}, SyncAlways)
		cfg.Expect = c.known
		var found []Recovery
		cfg.OnRecovered = func(r Recovery) error {
			found = append(found, r)
			if len(found) < 3 {
				return syscall.EIO
			}
			return nil
		}
		var l *Log
		err := error(syscall.EIO)
		for range 3 {
			if !errors.Is(err, syscall.EIO) {
				t.Fatalf("%s: %v", name, err)
			}
			l, err = Open(cfg)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, r := range found {
			if len(r.Missing) != 1 || !slices.Equal(extents(r.Missing), extents(l.Recovered().Missing)) ||
				r.Last != l.Recovered().Last {
				t.Errorf("%s: told of %+v, then of %+v", name, r, l.Recovered())
			}
		}
		closeLog(t, l)
	}
}

// The hole that an opening writes for what is gone may be torn by a power cut, its end on the disk
// and its beginning not: nothing durable stood there, and the log opens.
func TestTornHoleIsNoDamage(t *testing.T) {
	const records = 300
	whole := severalSegments(t, records, false)
	bases := segmentsOf(t, whole)
	cfg := small(nil, SyncAlways)
	cfg.Expect = Extent{Last: records, End: records}
	for size := int64(headerBytes); size < headerBytes+1600; size += 97 { // it is at another place in a sector
		for n, met := 1, true; met; n++ {
			d := whole.Copy()
			if err := errors.Join(d.Cut(segmentName(bases[len(bases)-1]), size), d.Sync()); err != nil {
				t.Fatal(err)
			}
			met = dieAt(d, cfg, n)
			for seed := range uint64(8) {
				cfg.FS = faulty{d.Crash(seed)}
				l, err := Open(cfg)
				if err != nil {
					t.Fatalf("cut to %d bytes, the power cut at operation %d, seed %d: %v", size, n, seed, err)
				}
				if next := l.Position().Next; next != records+1 {
					t.Errorf("cut to %d bytes, the power cut at operation %d, seed %d: %d is next", size, n, seed, next)
				}
				closeLog(t, l)
			}
		}
	}
}
