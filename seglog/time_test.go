package seglog

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/fault"
)

// clock gives times as a clock does that is set now and then, and records of several sources that
// are a little out of order.
func clock(rng *rand.Rand) func() int64 {
	now := int64(rng.IntN(3)-1) * 1000
	return func() int64 {
		switch now += int64(rng.IntN(4)); rng.IntN(120) {
		case 0:
			now -= int64(rng.IntN(3000))
		case 1:
			now += int64(rng.IntN(3000))
		}
		return now - int64(rng.IntN(6))
	}
}

// Whatever the times are: SeekTime finds the first record that is not earlier, as reading
// everything would.
func TestSeekTimeFindsWhatIsThere(t *testing.T) {
	for seed := range uint64(12) {
		for name, policy := range map[string]SyncPolicy{"always": SyncAlways, "batch": SyncBatch} {
			t.Run(fmt.Sprintf("%s-%d", name, seed), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(seed, uint64(policy)))
				d := fault.New()
				l := open(t, small(faulty{d}, policy))
				tick := clock(rng)
				var times []int64
				for range 1 + rng.IntN(900) {
					at := tick()
					if _, err := l.Append(0, at, payload(uint64(len(times)+1))); err != nil {
						t.Fatal(err)
					}
					times = append(times, at)
				}
				if err := l.Sync(); err != nil {
					t.Fatal(err)
				}
				check := func(how string, r *Reader) { seekEverywhere(t, how, r, times, rng) }
				check("live", l.NewReader(0))
				check("from outside", NewReader(faulty{d}, 0))
				closeLog(t, l)
				check("closed", NewReader(faulty{d}, 0))
				l = open(t, small(faulty{d}, policy))
				check("opened again", l.NewReader(0))
				closeLog(t, l)
				names, _ := d.List()
				for _, name := range names {
					if len(name) > 4 && name[len(name)-4:] == indexSuffix {
						if err := d.Remove(name); err != nil {
							t.Fatal(err)
						}
					}
				}
				check("without an index", NewReader(faulty{d}, 0))
			})
		}
	}
}

func seekEverywhere(t *testing.T, how string, r *Reader, times []int64, rng *rand.Rand) {
	t.Helper()
	defer r.Close()
	low, high := slices.Min(times), slices.Max(times)
	for range 60 {
		at := times[rng.IntN(len(times))] + int64(rng.IntN(3)-1)
		if rng.IntN(10) == 0 {
			at = low - 2 + rng.Int64N(high-low+4)
		}
		want := uint64(slices.IndexFunc(times, func(x int64) bool { return x >= at }) + 1)
		if err := r.SeekTime(at); err != nil {
			t.Fatal(err)
		}
		rec, err := r.Next()
		if want == 0 && err == io.EOF {
			continue
		}
		if err != nil || rec.Seq != want || rec.Time != times[want-1] {
			t.Fatalf("%s: from time %d: record %d, %v; want %d of %d", how, at, rec.Seq, err, want, len(times))
		}
		// what follows is not passed over
		if rec, err := r.Next(); int(want) < len(times) && (err != nil || rec.Seq != want+1) {
			t.Fatalf("%s: record %d, %v follows %d", how, rec.Seq, err, want)
		}
	}
}

// A batch whose last record is its earliest keeps its segment: retention by age looks at the
// highest time.
func TestRetentionByAgeLooksAtTheHighestTime(t *testing.T) {
	cfg := small(faulty{fault.New()}, SyncBatch)
	cfg.KeepAge = time.Hour
	l := open(t, cfg)
	for n := range uint64(400) {
		at := time.Now()
		if n%2 == 1 {
			at = time.Unix(0, 0) // of a source whose clock is not set
		}
		if _, err := l.Append(0, at.UnixNano(), payload(n+1)); err != nil {
			t.Fatal(err)
		}
		if n%2 == 1 {
			if err := l.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if l.shelf.overdue() {
		t.Error("a segment with records of this moment is to be removed for its age")
	}
	closeLog(t, l)
	l = open(t, cfg)
	if l.shelf.overdue() {
		t.Error("… when the log is opened again")
	}
	closeLog(t, l)
}

// Retention by age asks the owner how old a record is.
func TestRetentionByAgeAsksTheOwner(t *testing.T) {
	cfg := small(faulty{fault.New()}, SyncAlways)
	var age atomic.Int64
	cfg.KeepAge, cfg.Age = time.Hour, func(int64) time.Duration { return time.Duration(age.Load()) }
	l := open(t, cfg)
	for n := range uint64(400) {
		if _, err := l.Append(0, 1, payload(n+1)); err != nil { // in 1970
			t.Fatal(err)
		}
	}
	if l.shelf.overdue() || l.Position().First != 1 {
		t.Error("a segment is to be removed by a clock that was set")
	}
	age.Store(int64(2 * time.Hour))
	if !l.shelf.overdue() {
		t.Error("a segment that is old enough stays")
	}
	closeLog(t, l)
}
