package seglog

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallywheel/tallywheel/internal/fault"
)

// A newest segment that is cut off within its header, or is all zeros, is set aside, whatever was
// set aside before; the log goes on under its identity.
func TestCutHeaderIsSetAside(t *testing.T) {
	for _, records := range []uint64{50, 300} {
		for _, size := range []int64{0, 1, 100, 128, 2047, 2175, 2176, 4095, headerBytes + 1} {
			d := severalSegments(t, records, true)
			bases := segmentsOf(t, d)
			name := segmentName(bases[len(bases)-1])
			want, err := Identity(faulty{d})
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Cut(name, min(size, headerBytes)); err != nil {
				t.Fatal(err)
			}
			if size > headerBytes {
				put(t, d, name, make([]byte, 32<<10))
			}
			left := d.Bytes(name)
			put(t, d, name+damagedSuffix, []byte("of an earlier time"))
			cfg := small(faulty{d}, SyncAlways)
			if size < headerV2 || size > headerBytes {
				cfg.Identity = want // nothing else may tell it
			}
			l := openHarmed(t, cfg)
			r := l.Recovered()
			if !slices.Equal(r.Damaged, []string{name + damagedSuffix + ".2"}) || l.Identity() != want ||
				l.Position().Next != records+1 {
				t.Errorf("%d records, cut to %d: %+v, identity %x, want %x, %d is next", records, size, r, l.Identity(),
					want, l.Position().Next)
			}
			if kept := d.Bytes(name + damagedSuffix + ".2"); !bytes.Equal(kept, left) {
				t.Errorf("%d records, cut to %d: %d bytes are kept of %d", records, size, len(kept), len(left))
			}
			closeLog(t, l)
			l = open(t, small(faulty{d}, SyncAlways))
			if r := l.Recovered(); len(r.Missing)+len(r.Damaged) > 0 {
				t.Errorf("%d records, cut to %d: the opening after that says %+v", records, size, r)
			}
			closeLog(t, l)
		}
	}
}

// A log whose first segment finds no room opens, says why it waits, and goes on when there is room;
// what is gone is named all the while, and its numbers are not given again.
func TestOpenOnAFullDisk(t *testing.T) {
	for _, gone := range []uint64{0, 500} {
		synctest.Test(t, func(t *testing.T) {
			d := fault.New()
			d.SetFree(0)
			cfg := small(faulty{d}, SyncBatch)
			cfg.Expect.Last = gone
			for range 2 {
				l := openHarmed(t, cfg)
				if m := l.Recovered().Missing; gone > 0 != (len(m) == 1 && m[0].From == 1 && m[0].To == gone) {
					t.Errorf("%+v is missing, want 1 to %d", m, gone)
				}
				if p := l.Position(); p.Stored != gone || p.Next != gone+1 {
					t.Errorf("%+v", p)
				}
				if _, err := l.TryAppend(0, 1, payload(gone+1)); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				if p := l.Position(); !p.Full || p.Stalled == nil || p.Stored != gone {
					t.Errorf("%+v", p)
				}
				if err := l.Close(); !errors.Is(err, ErrDiskFull) {
					t.Errorf("Close: %v", err)
				}
			}
			l := openHarmed(t, cfg)
			if _, err := l.TryAppend(0, 1, payload(gone+1)); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
			d.SetFree(-1)
			time.Sleep(time.Second)
			if p := l.Position(); p.Full || p.Durable != gone+1 {
				t.Errorf("with room: %+v", p)
			}
			gaps, n := holds(t, l.NewReader(0), gone+1)
			if n != 1 || gone > 0 != slices.Equal(gaps, []GapError{{From: 1, To: gone}}) {
				t.Errorf("%d records, gaps %v", n, gaps)
			}
			closeLog(t, l)
			l = open(t, cfg)
			if r := l.Recovered(); len(r.Missing) > 0 || r.Last != gone+1 {
				t.Errorf("the opening after that says %+v", r)
			}
			closeLog(t, l)
			if s, err := Verify(faulty{d}); err != nil || !s.Clean() {
				t.Errorf("Verify: %+v, %v", s, err)
			}
		})
	}
}

// openHarmed opens a log of which something may be missing.
func openHarmed(t *testing.T, cfg Config) *Log {
	t.Helper()
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Wherever a segment is cut, the newest or another: the log opens, names what is gone, gives no
// number twice, and readers get all that is whole.
func TestCutAnywhereIsNamed(t *testing.T) {
	const records = 500
	for _, closed := range []bool{true, false} {
		pristine := severalSegments(t, records, closed)
		bases := segmentsOf(t, pristine)
		for _, k := range []int{0, 1, len(bases) - 2, len(bases) - 1} {
			for _, size := range []int64{0, 127, 2175, headerBytes - 1, headerBytes, headerBytes + 100, 8192} {
				d := pristine.Copy()
				if err := d.Cut(segmentName(bases[k]), size); err != nil {
					t.Fatal(err)
				}
				if s, err := Verify(faulty{d}); err != nil || s.Clean() && (closed || k < len(bases)-1) {
					t.Errorf("closed: %v, segment %d cut to %d: Verify: %+v, %v", closed, k, size, s, err)
				}
				cfg := small(faulty{d}, SyncAlways)
				cfg.Expect.Last = records
				l, err := Open(cfg)
				if err != nil {
					t.Errorf("closed: %v, segment %d cut to %d: %v", closed, k, size, err)
					continue
				}
				lost, most := uint64(0), false
				for _, m := range l.Recovered().Missing {
					lost, most = lost+m.To-m.From+1, most || m.AtMost
				}
				last := l.Position().Next - 1
				gaps, whole := holds(t, l.NewReader(0), last)
				if lost == 0 || whole+lost != last || most != (!closed && k == len(bases)-1 && size < headerBytes) {
					t.Errorf("closed: %v, segment %d cut to %d: %d records of %d, %+v, gaps %v", closed, k, size, whole,
						last, l.Recovered(), gaps)
				}
				closeLog(t, l)
			}
		}
	}
}

// Segments behind a torn one are set aside, and what an earlier start has set aside under such a
// name stays as it is. The numbers in them are not given again.
func TestTornSegmentsReplaceNone(t *testing.T) {
	d := fault.New()
	l := open(t, small(faulty{d}, SyncNever))
	appendUpTo(t, l, 600)
	killed := d.Copy()
	closeLog(t, l)
	d, cfg := killed, small(faulty{killed}, SyncNever)
	bases := segmentsOf(t, d)
	if len(bases) < 4 {
		t.Fatalf("the segments begin with %v", bases)
	}
	flip(t, d, segmentName(bases[1]), headerBytes+frameHeader)
	want := map[string][]byte{}
	var names []string
	for i, base := range bases[2:] {
		name := segmentName(base) + tornSuffix
		if i == 0 {
			want[name] = []byte("of an earlier start")
			put(t, d, name, want[name])
			name += ".2"
		}
		want[name] = d.Bytes(segmentName(base))
		names = append(names, name)
	}
	noted, err := readSaid(faulty{d}, false)
	if err != nil {
		t.Fatal(err)
	}
	l = open(t, cfg)
	given := max(noted.stored, bases[len(bases)-1]-1)
	if r := l.Recovered(); !slices.Equal(r.Torn, names) || len(r.Missing) > 0 || r.Last != given ||
		r.Unsynced.From != bases[1] || r.Unsynced.To != given {
		t.Errorf("%+v; want %v set aside, and records %d to %d gone that were not synced", r, names, bases[1], given)
	}
	for name, b := range want {
		if !bytes.Equal(d.Bytes(name), b) {
			t.Errorf("%s is not as it was", name)
		}
	}
	appendUpTo(t, l, 700)
	closeLog(t, l)
	l = open(t, cfg)
	if r := l.Recovered(); len(r.Torn) > 0 || len(r.Missing) > 0 || r.Last != 700 {
		t.Errorf("the next start: %+v", r)
	}
	closeLog(t, l)
}
