package seglog

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallywheel/tallywheel/internal/fault"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// findings is what looks at segments have found last.
type findings struct {
	mu     sync.Mutex
	last   map[uint64][]Problem
	passes int
	bytes  int64
}

func (f *findings) checked(c Checked) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil {
		f.last = map[uint64][]Problem{}
	}
	f.last[c.Base] = c.Problems
	f.bytes += c.Bytes
	if c.Last {
		f.passes++
	}
}

func (f *findings) passed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.passes
}

func (f *findings) problems() (all []Problem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.last {
		all = append(all, p...)
	}
	slices.SortFunc(all, func(a, b Problem) int { return int(a.From) - int(b.From) })
	return all
}

// What is damaged while it lies there is told within the time of a pass, once it is; what is whole
// is not. A pass takes its time.
func TestScrubTellsDamageAtRest(t *testing.T) {
	for name, c := range map[string]struct {
		harm func(t *testing.T, d *fault.Dir, bases []uint64)
		of   func(bases []uint64) (from, to uint64) // the records may be among these
	}{
		"nothing": {},
		"a bit of a sealed segment": {
			harm: func(t *testing.T, d *fault.Dir,
				bases []uint64,
			) {
				flip(t, d, segmentName(bases[1]), headerBytes+500)
			},
			of: func(bases []uint64) (uint64, uint64) { return bases[1], bases[2] - 1 },
		},
		"a bit of the segment that is written to": {
			harm: func(t *testing.T, d *fault.Dir, bases []uint64) {
				flip(t, d, segmentName(bases[len(bases)-1]), headerBytes+500)
			},
			of: func(bases []uint64) (uint64, uint64) { return bases[len(bases)-1], 400 },
		},
		"zeros": {
			harm: func(t *testing.T, d *fault.Dir, bases []uint64) {
				zeroed(t, d, segmentName(bases[0]), headerBytes+1000, 8000)
			},
			of: func(bases []uint64) (uint64, uint64) { return bases[0], bases[1] - 1 },
		},
		"cut": {
			harm: func(t *testing.T, d *fault.Dir, bases []uint64) {
				if err := d.Cut(segmentName(bases[1]), headerBytes+2000); err != nil {
					t.Fatal(err)
				}
			},
			of: func(bases []uint64) (uint64, uint64) { return bases[1], bases[2] - 1 },
		},
		"gone": {
			harm: func(t *testing.T, d *fault.Dir, bases []uint64) {
				if err := d.Remove(segmentName(bases[1])); err != nil {
					t.Fatal(err)
				}
			},
			of: func(bases []uint64) (uint64, uint64) { return bases[1], bases[2] - 1 },
		},
		"both headers": {
			harm: func(t *testing.T, d *fault.Dir, bases []uint64) {
				flip(t, d, segmentName(bases[1]), 20)
				flip(t, d, segmentName(bases[1]), headerCopy+20)
			},
			of: func(bases []uint64) (uint64, uint64) { return bases[1], bases[2] - 1 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, found := fault.New(), &findings{}
				cfg := small(faulty{d}, SyncAlways)
				cfg.Scrub, cfg.OnChecked = time.Hour, found.checked
				l := open(t, cfg)
				appendUpTo(t, l, 400)
				time.Sleep(61 * time.Minute)
				if p := found.problems(); len(p) > 0 || found.passes != 2 {
					t.Fatalf("%+v after %d passes", p, found.passes)
				}
				bases := segmentsOf(t, d)
				// two passes over what there is, but one segment may be gone
				least := 2*l.Position().Used - cfg.SegmentBytes
				if c.harm != nil {
					c.harm(t, d, bases)
				}
				time.Sleep(61 * time.Minute)
				switch p := found.problems(); {
				case c.harm == nil && len(p) > 0:
					t.Errorf("%+v", p)
				case c.harm == nil:
				case len(p) != 1:
					t.Errorf("want one problem: %+v", p)
				default:
					from, to := c.of(bases)
					if p[0].From < from || p[0].To > to || p[0].From > p[0].To {
						t.Errorf("want one of records %d to %d: %+v", from, to, p)
					}
				}
				appendUpTo(t, l, 500) // it goes on
				if found.passes != 3 || found.bytes < least {
					t.Errorf("%d passes, %d bytes read, want %d at least", found.passes, found.bytes, least)
				}
				closeLog(t, l)
			})
		})
	}
}

func flip(t *testing.T, d *fault.Dir, name string, off int64) {
	t.Helper()
	if err := d.Flip(name, off, 1); err != nil {
		t.Fatal(err)
	}
}

// Somebody cuts the segment that is written to, or writes over it, while the log runs. It is told
// within seconds, what comes goes into another segment, and the next start has that.
func TestSegmentInUseIsCutOrWrittenOver(t *testing.T) {
	junk := make([]byte, 6000)
	for name, harm := range map[string]func(f *os.File, end int64) error{
		"cut":        func(f *os.File, end int64) error { return f.Truncate(end / 2) },
		"emptied":    func(f *os.File, _ int64) error { return f.Truncate(0) },
		"header":     func(f *os.File, _ int64) error { _, err := f.WriteAt(junk[:64], 0); return err },
		"first half": func(f *os.File, end int64) error { _, err := f.WriteAt(junk[:end/2], 0); return err },
		"end":        func(f *os.File, end int64) error { _, err := f.WriteAt(junk[:200], end-200); return err },
	} {
		for _, grown := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				path := t.TempDir()
				dir, err := Dir(path)
				if err != nil {
					t.Fatal(err)
				}
				found := &findings{}
				cfg := small(dir, SyncBatch)
				cfg.OnChecked = found.checked
				l := open(t, cfg)
				appendUpTo(t, l, 20)
				if grown { // its file is no longer than what is in it
					closeLog(t, l)
					if err := os.Truncate(filepath.Join(path, segmentName(1)), l.Position().Used); err != nil {
						t.Fatal(err)
					}
					l = open(t, cfg)
				}
				appendUpTo(t, l, 25)
				if err := l.Sync(); err != nil {
					t.Fatal(err)
				}
				f, err := os.OpenFile(filepath.Join(path, segmentName(1)), os.O_RDWR, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				if err := harm(f, l.Position().Used); err != nil {
					t.Fatal(err)
				}
				testenv.Until(t, patience, "the damage is told", func() bool { return len(found.problems()) > 0 })
				p := found.problems()
				if whole := name == "header"; whole != (p[0].To == 0) || p[0].Segment != segmentName(1) ||
					p[0].To > 25 {
					t.Errorf("%+v", p)
				}
				appendUpTo(t, l, 40)
				if err := l.Sync(); err != nil {
					t.Fatal(err)
				}
				if bases, err := segmentBases(dir); err != nil || !slices.Equal(bases, []uint64{1, 26}) ||
					l.Position().Err != nil {
					t.Errorf("segments %v, %v; %+v", bases, err, l.Position())
				}
				closeLog(t, l)
				if _, err := Repair(dir); err != nil {
					t.Fatal(err)
				}
				l = openHarmed(t, cfg)
				if n := l.Position().Next; n != 41 {
					t.Errorf("the log goes on with %d, want 41", n)
				}
				closeLog(t, l)
			})
		}
	}
}

// A segment that is cut, and full before the watch has looked, is looked at when it is sealed.
func TestSegmentCutBeforeItIsSealed(t *testing.T) {
	path := t.TempDir()
	dir, err := Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	found := &findings{}
	cfg := small(dir, SyncBatch)
	cfg.OnChecked = found.checked
	l := open(t, cfg)
	appendUpTo(t, l, 25)
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(path, segmentName(1)), 5000); err != nil {
		t.Fatal(err)
	}
	appendUpTo(t, l, 1000)
	testenv.Until(t, patience, "the damage is told", func() bool { return len(found.problems()) > 0 })
	if p := found.problems(); p[0].Segment != segmentName(1) {
		t.Errorf("%+v", p)
	}
	closeLog(t, l)
}

// While the log is written, and retention uses old files again, nothing is called damaged that is
// not.
func TestScrubWhileRetentionRecycles(t *testing.T) {
	d, found := fault.New(), &findings{}
	cfg := small(faulty{d}, SyncBatch)
	cfg.KeepBytes, cfg.Scrub, cfg.OnChecked = 4*cfg.SegmentBytes, time.Nanosecond, found.checked
	l := open(t, cfg)
	for n := range uint64(20_000) {
		if _, err := l.Append(0, 1, payload(n%50)); err != nil {
			t.Fatal(err)
		}
		if n%1000 == 0 {
			for _, s := range l.shelf.sealed() {
				l.suspect(s.base)
			}
			l.suspect(l.Position().Next - 1)
		}
	}
	closeLog(t, l)
	if p := found.problems(); len(p) > 0 || found.bytes == 0 {
		t.Errorf("%d bytes read: %+v", found.bytes, p)
	}
}

// Damage to the segment that is written to is told within seconds also while a pass reads slowly,
// and the pass goes on behind that.
func TestAPassRestsForASuspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, found := fault.New(), &findings{}
		cfg := small(faulty{d}, SyncBatch)
		cfg.SegmentBytes, cfg.BufferBytes, cfg.OnChecked = 64<<20, 1<<20, found.checked
		l := open(t, cfg)
		record := make([]byte, 256<<10)
		for range 128 { // 32 MiB, of which a pass reads 16 at once, and the rest in a minute
			if _, err := l.Append(1, 1, record); err != nil {
				t.Fatal(err)
			}
		}
		closeLog(t, l)
		cfg.Scrub = time.Hour
		l = open(t, cfg)
		time.Sleep(20 * time.Second)
		if found.passed() > 0 {
			t.Fatal("the pass is over before the damage")
		}
		if err := d.Cut(segmentName(1), 31<<20); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if p := found.problems(); len(p) != 1 || p[0].To != 128 {
			t.Errorf("told after 5 s: %+v; want what was cut", p)
		}
		if time.Sleep(time.Minute); found.passed() != 1 {
			t.Errorf("%d passes, want one", found.passed())
		}
		closeLog(t, l)
	})
}

// TestBehindWhileItRotates asks again and again for the segment behind the one that is written to,
// until there is one. The answer is the next one that the log then has, and none behind that.
func TestBehindWhileItRotates(t *testing.T) {
	l := open(t, small(faulty{fault.New()}, SyncNever))
	filled := make(chan struct{})
	go func() {
		defer close(filled)
		for n := range uint64(20_000) {
			if _, err := l.Append(1, int64(n), payload(n)); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	said := map[uint64]uint64{}
	for base, full := uint64(1), false; ; {
		select {
		case <-filled:
			full = true
		default:
		}
		next := l.behind(base)
		if next > 0 {
			said[base] = next
			base = next
		} else if full {
			break
		}
	}
	bases := []uint64{}
	for _, s := range l.shelf.sealed() {
		bases = append(bases, s.base)
	}
	closeLog(t, l)
	for i := range len(bases) - 1 {
		if said[bases[i]] != bases[i+1] {
			t.Fatalf("behind %d: %d, want %d", bases[i], said[bases[i]], bases[i+1])
		}
	}
}
