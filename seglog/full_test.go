package seglog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/fault"
)

func TestFullDiskStops(t *testing.T) {
	d := fault.New()
	d.SetFree(100 << 10)
	cfg := small(faulty{d}, SyncBatch)
	l := open(t, cfg)
	next, refused := uint64(1), 0
	for refused < 3 {
		_, err := l.Append(0, 1, payload(next))
		switch {
		case err == nil:
			next++
		case errors.Is(err, ErrDiskFull):
			refused++
		default:
			t.Fatal(err)
		}
		if next > 5000 {
			t.Fatal("the disk never was full")
		}
	}
	if !l.Position().Full {
		t.Error("Position does not say that the disk is full")
	}
	d.SetFree(10 << 20)
	if err := l.Sync(); err != nil { // waits for the next try
		t.Fatal(err)
	}
	closeLog(t, l)
	if last := readAll(t, NewReader(faulty{d}, 0), 1); last != next-1 {
		t.Errorf("read up to %d; %d were taken", last, next-1)
	}
}

// Under SyncAlways the producer whose record did not fit waits. Its own commit met the full disk,
// so nobody else is at work: the background must try again by itself.
func TestFullDiskHoldsAppendUntilThereIsRoom(t *testing.T) {
	d := fault.New()
	d.SetFree(100 << 10)
	l := open(t, small(faulty{d}, SyncAlways))
	const records = 1000
	done := make(chan error, 1)
	go func() {
		for n := range uint64(records) {
			if _, err := l.Append(0, 1, payload(n+1)); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for !l.Position().Full {
		select {
		case err := <-done:
			t.Fatalf("the disk never was full: %v", err)
		default:
			runtime.Gosched()
		}
	}
	d.SetFree(10 << 20)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	if last := readAll(t, NewReader(faulty{d}, 0), 1); last != records {
		t.Errorf("read up to %d, want %d", last, records)
	}
}

// A full disk is asked again now and then, not as fast as the machine can.
func TestFullDiskIsNotAskedInALoop(t *testing.T) {
	d := fault.New()
	l := open(t, small(faulty{d}, SyncBatch))
	var tries atomic.Int64
	fourth := make(chan time.Time, 1)
	d.SetInject(func(op fault.Op, name string) (int, error) {
		if op != fault.OpWrite || strings.HasSuffix(name, ".part") {
			return 0, nil
		}
		if tries.Add(1) == 4 {
			fourth <- time.Now()
		}
		return 0, syscall.ENOSPC
	})
	begun := time.Now()
	if _, err := l.Append(0, 1, payload(1)); err != nil {
		t.Fatal(err)
	}
	if took := (<-fourth).Sub(begun); took < retryDelay { // one of the four may follow the first at once
		t.Errorf("four tries in %v, want one in %v", took, retryDelay)
	}
	d.SetInject(nil)
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
}

// A segment that was begun without a spare takes room as it is written, and the disk may be full in
// the middle of it: a spare that was made since gives way, then, where that is the policy, the
// oldest segment.
func TestFullDiskInsideASegment(t *testing.T) {
	for name, drop := range map[string]bool{"stop": false, "drop oldest": true} {
		t.Run(name, func(t *testing.T) {
			d := fault.New()
			cfg := small(faulty{d}, SyncAlways)
			if drop {
				cfg.OnFull = DropOldest
			}
			l := open(t, cfg)
			next := uint64(1)
			fill := func(until func() bool) {
				t.Helper()
				for ; !until(); next++ {
					if seq, err := l.Append(0, 1, payload(next)); err != nil || seq != next {
						t.Fatalf("Append gave %d, %v; want %d", seq, err, next)
					}
				}
			}
			has := func(suffix string) (n int) {
				names, _ := d.List()
				for _, name := range names {
					if strings.HasSuffix(name, suffix) {
						n++
					}
				}
				return n
			}
			var refuse atomic.Bool // … to make spares
			d.SetInject(func(op fault.Op, name string) (int, error) {
				if refuse.Load() && op == fault.OpCreate && strings.HasSuffix(name, ".part") {
					return 0, syscall.ENOSPC
				}
				return 0, nil
			})
			refuse.Store(true)
			fill(func() bool { return has(".seg") == 3 && has(".spare") == 0 })
			refuse.Store(false)
			signal(l.shelf.work)
			for ready := false; !ready; runtime.Gosched() {
				l.shelf.mu.Lock()
				ready = len(l.shelf.next) > 0
				l.shelf.mu.Unlock()
			}
			d.SetFree(0)
			fill(func() bool { return has(".spare") == 0 })
			if l.Position().First != 1 {
				t.Error("a segment was dropped while there was a spare")
			}
			if drop {
				fill(func() bool { return l.Position().First > 1 })
				fill(func() bool { return next > 3000 })
			}
			d.SetFree(-1)
			first := l.Position().First
			closeLog(t, l)
			if last := readAll(t, NewReader(faulty{d}, first), first); last != next-1 {
				t.Errorf("read up to %d; %d were taken", last, next-1)
			}
			if s, err := Verify(faulty{d}); err != nil || !s.Clean() || len(s.Problems) > 0 {
				t.Errorf("Verify: %+v, %v", s, err)
			}
		})
	}
}

func TestFullDiskDropsOldest(t *testing.T) {
	d := fault.New()
	d.SetFree(200 << 10)
	cfg := small(faulty{d}, SyncAlways)
	cfg.OnFull = DropOldest
	l := open(t, cfg)
	for n := range uint64(5000) {
		if _, err := l.Append(0, 1, payload(n+1)); err != nil {
			t.Fatalf("record %d: %v", n+1, err)
		}
	}
	p := l.Position()
	if p.First == 1 || !p.Evicting || p.Evicted != p.First-1 {
		t.Errorf("the log begins with record %d: %d were removed early, evicting %v", p.First, p.Evicted, p.Evicting)
	}
	if last := readAll(t, l.NewReader(0), p.First); last != 5000 {
		t.Errorf("read up to %d, want 5000", last)
	}
	d.SetFree(-1)
	for signal(l.shelf.work); l.Position().Evicting; runtime.Gosched() {
	}
	if now := l.Position(); now.Evicted < p.Evicted {
		t.Errorf("%d records were removed early, and then %d", p.Evicted, now.Evicted)
	}
	r := l.NewReader(5)
	var gap *GapError
	if _, err := r.Next(); !errors.As(err, &gap) || gap.From != 5 || gap.To != p.First-1 {
		t.Errorf("reading what was dropped gives %v, want a gap 5 to %d", err, p.First-1)
	}
	r.Close()
	closeLog(t, l)
}

// TestRoomComesAndGoes: while others fill the disk and leave it again at any moment, nothing that
// was taken is lost but by policy, nobody waits for ever, and what a cut leaves at any moment
// opens.
func TestRoomComesAndGoes(t *testing.T) {
	seeds := uint64(4)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		for name, policy := range policies {
			for _, full := range []FullPolicy{StopWhenFull, DropOldest} {
				t.Run(fmt.Sprintf("%s-%d-%d", name, full, seed), func(t *testing.T) {
					t.Parallel()
					roomComesAndGoes(t, seed, policy, full)
				})
			}
		}
	}
}

// watched is a directory whose power is cut, in copies, now and then between one operation and the
// next.
type watched struct {
	faulty
	*cuts
	rng   *rand.Rand
	every int // syncs of files, on average, between two cuts
	most  int // cuts
}

type cuts struct {
	mu      sync.Mutex
	states  []cut
	durable atomic.Uint64
}

type cut struct {
	dir     *fault.Dir
	durable uint64    // the last sequence that must have survived
	gaps    []Missing // what cuts before had taken that was not synced
}

// before is called before an operation; names change seldom, and matter most.
func (w watched) before(odds int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.states) < w.most && w.rng.IntN(odds) == 0 {
		durable := w.durable.Load()
		w.states = append(w.states, cut{dir: w.Crash(w.rng.Uint64()), durable: durable})
	}
}

func (w watched) Rename(from, to string) error {
	w.before(min(10, w.every))
	return w.faulty.Rename(from, to)
}

func (w watched) Remove(name string) error { w.before(min(10, w.every)); return w.faulty.Remove(name) }
func (w watched) Sync() error              { w.before(min(10, w.every)); return w.faulty.Sync() }

func (w watched) Create(name string) (File, error) { return w.file(w.faulty.Create(name)) }
func (w watched) Open(name string) (File, error)   { return w.file(w.faulty.Open(name)) }

func (w watched) file(f File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return watchedFile{f, w}, nil
}

type watchedFile struct {
	File
	w watched
}

func (f watchedFile) Sync() error { f.w.before(f.w.every); return f.File.Sync() }

func roomComesAndGoes(t *testing.T, seed uint64, policy SyncPolicy, full FullPolicy) {
	rng := rand.New(rand.NewPCG(seed, uint64(policy)<<8|uint64(full)))
	d := fault.New()
	d.SetFree(int64(40<<10 + rng.IntN(200<<10)))
	w := watched{faulty: faulty{d}, cuts: new(cuts), rng: rand.New(rand.NewPCG(seed, 8)), every: 200, most: 12}
	cfg := small(w, policy)
	cfg.OnCommit = func(c Commit) { w.durable.Store(c.Durable) }
	cfg.OnFull = full
	if rng.IntN(2) == 0 {
		cfg.KeepBytes = 6 * cfg.SegmentBytes
	}
	l := open(t, cfg)
	const records = 3000
	done := make(chan bool)
	others := sync.WaitGroup{}
	others.Go(func() {
		rng := rand.New(rand.NewPCG(seed, 9))
		for {
			select {
			case <-done:
				d.SetFree(-1)
				return
			default:
			}
			switch runtime.Gosched(); rng.IntN(40) {
			case 0:
				d.SetFree(int64(rng.IntN(20 << 10)))
			case 1, 2:
				d.SetFree(int64(rng.IntN(300 << 10)))
			}
		}
	})
	for next := uint64(1); next <= records; {
		seq, err := l.Append(0, int64(next), payload(next))
		switch {
		case errors.Is(err, ErrDiskFull):
			runtime.Gosched()
		case err != nil || seq != next:
			t.Fatalf("Append gave %d, %v; want %d", seq, err, next)
		default:
			next++
		}
	}
	close(done)
	others.Wait()
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	first := l.Position().First
	if full == StopWhenFull && cfg.KeepBytes == 0 && first != 1 {
		t.Errorf("the log begins with record %d", first)
	}
	if s, err := Verify(faulty{d}); err != nil || !s.Clean() || len(s.Problems) > 0 || s.Last != records {
		t.Errorf("Verify: %+v, %v", s, err)
	}
	if last := readAll(t, NewReader(faulty{d}, 0), first); last != records {
		t.Errorf("read up to %d, want %d", last, records)
	}
	for i, c := range w.states {
		again := c.comesBack(t, fmt.Sprintf("cut %d", i), policy, seed)
		for j, c := range again {
			c.comesBack(t, fmt.Sprintf("cut %d and %d", i, j), policy, seed)
		}
	}
}

// comesBack opens what a cut left, appends to it and closes it, and returns what cuts meanwhile
// would have left.
func (c cut) comesBack(t *testing.T, name string, policy SyncPolicy, seed uint64) []cut {
	w := watched{faulty: faulty{c.dir}, cuts: new(cuts), rng: rand.New(rand.NewPCG(seed, 10)), every: 10, most: 3}
	w.durable.Store(c.durable)
	cfg := small(w, policy)
	cfg.OnCommit = func(c Commit) { w.durable.Store(c.Durable) }
	l, err := Open(cfg)
	if err != nil {
		t.Fatalf("open after %s: %v", name, err)
	}
	p := l.Position()
	if m := l.Recovered().Missing; len(m) > 0 {
		t.Errorf("after %s it is reported as missing: %v", name, m)
	}
	gaps := append(slices.Clip(c.gaps), l.Recovered().Unsynced)
	if last := readPast(t, l.NewReader(0), p.First, gaps); last < c.durable || last != p.Next-1 {
		t.Errorf("after %s the log ends with record %d, %d was durable, %d is next", name, last, c.durable, p.Next)
	}
	for next := p.Next; next < p.Next+150; next++ { // into another segment
		if seq, err := l.Append(0, int64(next), payload(next)); err != nil || seq != next {
			t.Fatalf("after %s Append gave %d, %v; want %d", name, seq, err, next)
		}
	}
	closeLog(t, l)
	if s, err := Verify(w); err != nil || !s.Clean() {
		t.Errorf("Verify after %s: %+v, %v", name, s, err)
	}
	for i := range w.states {
		w.states[i].gaps = gaps
	}
	return w.states
}
