package seglog

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tallywheel/tallywheel/internal/fault"
)

// zeroed puts zeros in place of what a segment holds, from off on.
func zeroed(t *testing.T, d *fault.Dir, name string, off int64, n int) {
	t.Helper()
	f, err := faulty{d}.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(make([]byte, n), off)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// openRepaired is open of a log that was repaired: it may miss what the repair gave up.
func openRepaired(t testing.TB, cfg Config) *Log {
	t.Helper()
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range l.Recovered().Missing {
		if !strings.HasPrefix(m.What, "a repair could not read it") {
			t.Errorf("opening reports as missing %v", m)
		}
	}
	return l
}

// missingOf counts what an opening named.
func missingOf(r Recovery) (n uint64) {
	for _, m := range r.Missing {
		n += m.To - m.From + 1
	}
	return n
}

// What a repair gave up is named by the next opening, and by no later one, wherever the power was
// cut in the repair, or in the opening before its owner was told.
func TestOpeningNamesWhatARepairGaveUp(t *testing.T) {
	const records = 600
	pristine := severalSegments(t, records, true)
	bases := segmentsOf(t, pristine)
	for name, base := range map[string]uint64{"middle": bases[1], "last": bases[len(bases)-1]} {
		d := pristine.Copy()
		zeroed(t, d, segmentName(base), headerBytes+40, 400)
		w := watched{faulty: faulty{d}, cuts: new(cuts), rng: rngFor(1), every: 1, most: 40}
		if _, err := Repair(w); err != nil {
			t.Fatal(name, err)
		}
		states := append(w.states, cut{dir: d})
		for i, c := range states {
			if _, err := Repair(faulty{c.dir}); err != nil { // goes on where it was cut
				t.Fatal(name, i, err)
			}
			s, err := Verify(faulty{c.dir})
			if err != nil || s.Lost == 0 || s.Records+s.Lost != records {
				t.Fatalf("%s, cut %d: %+v, %v", name, i, s, err)
			}
			o := watched{faulty: faulty{c.dir}, cuts: new(cuts), rng: rngFor(2), every: 1, most: 40}
			cfg := small(o, SyncAlways)
			told := errors.New("not yet")
			cfg.OnRecovered = func(r Recovery) error {
				if missingOf(r) != s.Lost {
					t.Errorf("%s, cut %d: %v is named, %d are lost", name, i, r.Missing, s.Lost)
				}
				return told
			}
			if _, err := Open(cfg); !errors.Is(err, told) {
				t.Fatal(name, i, err)
			}
			for j, killed := range append(o.states, cut{dir: c.dir}) {
				for again, want := range []uint64{s.Lost, 0, 0} {
					l := openRepaired(t, small(faulty{killed.dir}, SyncAlways))
					if got := missingOf(l.Recovered()); got != want {
						t.Errorf("%s, cut %d, %d, opening %d: %d are named, want %d", name, i, j, again, got, want)
					}
					closeLog(t, l)
				}
			}
		}
	}
}

// What an earlier repair gave up is told once: by the opening between the two, or else by the one
// behind them.
func TestRepairsTellOfTheirOwn(t *testing.T) {
	for _, between := range []bool{false, true} {
		d := severalSegments(t, 600, true)
		name := segmentName(segmentsOf(t, d)[1])
		var lost, named uint64
		for i := range 3 {
			zeroed(t, d, name, headerBytes+40+int64(i)*5000, 300)
			if _, err := Repair(faulty{d}); err != nil {
				t.Fatal(err)
			}
			s, err := Verify(faulty{d})
			if err != nil || s.Lost <= lost {
				t.Fatalf("%+v, %v", s, err)
			}
			lost = s.Lost
			if between || i == 2 {
				l := openRepaired(t, small(faulty{d}, SyncAlways))
				named += missingOf(l.Recovered())
				closeLog(t, l)
			}
		}
		if named != lost {
			t.Errorf("opened between repairs: %v; %d are named, %d are lost", between, named, lost)
		}
	}
}

// A mark that was made before its segment was in place says nothing, and goes.
func TestMarkOfAnotherSegmentSaysNothing(t *testing.T) {
	d := severalSegments(t, 600, true)
	h := header{base: segmentsOf(t, d)[1], salt: 7}
	if err := markUntold(faulty{d}, h); err != nil {
		t.Fatal(err)
	}
	cfg := small(faulty{d}, SyncAlways)
	cfg.OnRecovered = func(Recovery) error { return syscall.EIO }
	if _, err := Open(cfg); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	if is, err := hasUntold(faulty{d}, h); !is || err != nil {
		t.Errorf("a mark is gone before the owner was told: %v", err)
	}
	l := open(t, small(faulty{d}, SyncAlways))
	if r := l.Recovered(); len(r.Missing) > 0 {
		t.Errorf("%+v", r)
	}
	closeLog(t, l)
	if names, err := (faulty{d}).List(); err != nil || slices.Contains(names, untoldName(h.base, h.salt)) {
		t.Errorf("the mark is still there: %v, %v", names, err)
	}
}
