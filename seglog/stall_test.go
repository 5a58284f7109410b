package seglog

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallywheel/tallywheel/internal/fault"
)

// liveness is how long after the end of its cause a stall may last.
const liveness = 2 * time.Second

// patience is the same for tests on real time, where a busy machine may hold up everything.
const patience = 30 * liveness

// fillUntilFull offers records without waiting until the log says that the disk is full and takes
// no more. It returns the number of the next.
func fillUntilFull(t *testing.T, l *Log) (next uint64) {
	t.Helper()
	next = 1
	for late := time.Now().Add(patience); ; {
		_, err := l.TryAppend(0, 1, payload(next))
		switch {
		case err == nil:
			next++
		case errors.Is(err, ErrDiskFull):
			return next
		case !errors.Is(err, ErrBusy) || time.Now().After(late):
			t.Fatal(err)
		default:
			runtime.Gosched()
		}
	}
}

// settles waits until everything up to last is stored, as long as a stall may last.
func settles(t *testing.T, l *Log, last uint64) {
	t.Helper()
	for late := time.Now().Add(patience); l.Position().Stored < last; runtime.Gosched() {
		if time.Now().After(late) {
			t.Fatalf("%v after there was room again: %+v; want everything up to %d stored", patience, l.Position(),
				last)
		}
	}
}

// The disk has room again while both staging buffers are full and nobody waits for a commit: the
// log goes on by itself. A batch that waited for room is not left open for more records, however
// long that would be otherwise.
func TestFullDiskLeavesNothingStaged(t *testing.T) {
	for name, policy := range policies {
		for _, delay := range []time.Duration{time.Millisecond, time.Hour} {
			t.Run(name+"-"+delay.String(), func(t *testing.T) {
				t.Parallel()
				d := fault.New()
				d.SetFree(100 << 10)
				cfg := small(faulty{d}, policy)
				cfg.BatchDelay = delay
				l := open(t, cfg)
				next := fillUntilFull(t, l)
				d.SetFree(10 << 20)
				settles(t, l, next-1)
				for end := next + 200; next < end; { // and takes more
					if _, err := l.TryAppend(0, 1, payload(next)); err == nil {
						next++
					} else if !errors.Is(err, ErrBusy) {
						t.Fatal(err)
					}
					runtime.Gosched()
				}
				if err := l.Sync(); err != nil {
					t.Fatal(err)
				}
				closeLog(t, l)
				if last := readAll(t, NewReader(faulty{d}, 0), 1); last != next-1 {
					t.Errorf("read up to %d; %d were taken", last, next-1)
				}
			})
		}
	}
}

// passing lists errors that pass, as the kernel gives them when descriptors or memory run out or a
// network disk is away.
var passing = map[string]error{
	"EMFILE": syscall.EMFILE, "EAGAIN": syscall.EAGAIN, "EIO": syscall.EIO, "ESTALE": syscall.ESTALE,
	"ENOSPC": syscall.ENOSPC,
}

// stallsAndGoesOn offers records while fails makes operations fail, until the log stands, ends the
// cause, and expects everything to be stored soon after, and nothing lost.
func stallsAndGoesOn(t *testing.T, d *fault.Dir, cfg Config, why error, fails func(op fault.Op, name string) bool) {
	t.Helper()
	l := open(t, cfg)
	d.SetInject(func(op fault.Op, name string) (int, error) {
		if fails(op, name) {
			return 5, why
		}
		return 0, nil
	})
	next := uint64(1)
	for late := time.Now().Add(patience); ; runtime.Gosched() {
		_, err := l.TryAppend(0, 1, payload(next))
		switch {
		case err == nil:
			next++
		case errors.Is(err, ErrDiskFull) != errors.Is(why, syscall.ENOSPC) && !errors.Is(err, ErrBusy):
			t.Fatalf("TryAppend gives %v", err)
		}
		if p := l.Position(); err != nil && p.Stalled != nil {
			if !errors.Is(p.Stalled, why) || p.Full != errors.Is(why, syscall.ENOSPC) || p.Err != nil {
				t.Errorf("%+v; want a stall for %v", p, why)
			}
			break
		}
		if time.Now().After(late) {
			t.Fatalf("the log never stood still: %+v", l.Position())
		}
	}
	d.SetInject(nil)
	settles(t, l, next-1)
	if p := l.Position(); p.Stalled != nil {
		t.Errorf("still stalled: %+v", p)
	}
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	if last := readAll(t, NewReader(faulty{d}, 0), 1); last != next-1 {
		t.Errorf("read up to %d; %d were taken", last, next-1)
	}
	if s, err := Verify(faulty{d}); err != nil || !s.Clean() {
		t.Errorf("Verify: %+v, %v", s, err)
	}
	names, _ := d.List()
	if n := len(slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, spareSuffix) })); n > 1 {
		t.Errorf("%d spare files, want one at most", n)
	}
}

// Whatever goes wrong while a segment is begun is tried again until it goes right: no record is in
// it yet.
func TestErrorsOfBeginningASegmentPass(t *testing.T) {
	for name, why := range passing {
		for _, op := range []fault.Op{
			fault.OpCreate, fault.OpOpen, fault.OpWrite, fault.OpSync, fault.OpRename,
			fault.OpSyncDir,
		} {
			t.Run(name+"-"+string(op), func(t *testing.T) {
				t.Parallel()
				d := fault.New()
				stallsAndGoesOn(t, d, small(faulty{d}, SyncBatch), why, func(o fault.Op, name string) bool {
					// In the background, too, where the operation is that of making a spare.
					return o == op && (strings.Contains(name, spareSuffix) || o == fault.OpSyncDir)
				})
			})
		}
	}
}

// A write that the kernel puts off has left nothing in doubt: the batch goes again, to the same
// place.
func TestWritesThatAreToBeTriedAgainAre(t *testing.T) {
	for _, why := range []error{syscall.EAGAIN, syscall.ENOMEM, syscall.ENOSPC} {
		t.Run(why.Error(), func(t *testing.T) {
			t.Parallel()
			d := fault.New()
			stallsAndGoesOn(t, d, small(faulty{d}, SyncBatch), why, func(o fault.Op, name string) bool {
				return o == fault.OpWrite && strings.HasSuffix(name, segmentSuffix)
			})
		})
	}
}

// Under SyncNever a sync opens the segments that were sealed before. That it cannot is told to
// those who wait for it, and is no failure of the log.
func TestSyncThatCannotBeBegun(t *testing.T) {
	d := fault.New()
	l := open(t, small(faulty{d}, SyncNever))
	for n := range uint64(400) {
		if _, err := l.Append(0, 1, payload(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	settles(t, l, 400) // or the last batch might need another segment, and Sync would wait for that
	d.SetInject(func(op fault.Op, name string) (int, error) {
		if op == fault.OpOpen {
			return 0, syscall.EMFILE
		}
		return 0, nil
	})
	if err := l.Sync(); !errors.Is(err, syscall.EMFILE) || errors.Is(err, ErrFailed) {
		t.Errorf("Sync gives %v, want EMFILE", err)
	}
	if p := l.Position(); p.Err != nil || p.Durable != 0 || p.Stored != 400 {
		t.Errorf("%+v", p)
	}
	d.SetInject(nil)
	if err := l.Sync(); err != nil || l.Position().Durable != 400 {
		t.Errorf("Sync: %v, %+v", err, l.Position())
	}
	closeLog(t, l)
}

// After a failed write or sync the log is closed and opened again. What was in doubt is then in the
// log or not, the owner is told which, and what the log calls durable from then on survives a cut.
func TestFailedLogIsOpenedAgain(t *testing.T) {
	for _, op := range []fault.Op{fault.OpSync, fault.OpWrite} {
		for name, policy := range policies {
			for short := range 3 {
				t.Run(fmt.Sprintf("%s-%s-%d", op, name, short), func(t *testing.T) {
					t.Parallel()
					failedLogIsOpenedAgain(t, op, policy, []int{0, 40, 100}[short])
				})
			}
		}
	}
}

func failedLogIsOpenedAgain(t *testing.T, op fault.Op, policy SyncPolicy, short int) {
	d := fault.New()
	cfg := small(faulty{d}, policy)
	var mu sync.Mutex
	var told Commit
	cfg.OnCommit = func(c Commit) { mu.Lock(); defer mu.Unlock(); told = c }
	l := open(t, cfg)
	append100 := func(l *Log, from uint64) (next uint64) {
		for next = from; next < from+100; {
			if _, err := l.TryAppend(0, 1, payload(next)); err == nil {
				next++
			} else if errors.Is(err, ErrFailed) {
				return next
			}
			runtime.Gosched()
		}
		_ = l.Sync()
		return next
	}
	append100(l, 1)
	var once atomic.Bool
	d.SetInject(func(o fault.Op, name string) (int, error) {
		if o == op && strings.HasSuffix(name, segmentSuffix) && !once.Swap(true) {
			return short, syscall.EIO
		}
		return 0, nil
	})
	next := append100(l, 101)
	if err := l.Close(); !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
		t.Fatalf("Close gives %v, want ErrFailed for EIO", err)
	}
	if told.Err == nil || told.Doubt < told.Stored || told.Doubt >= next {
		t.Errorf("OnCommit was told %+v; %d records were taken", told, next-1)
	}
	l = open(t, cfg)
	last := l.Recovered().Last
	if last < told.Stored || last > told.Doubt {
		t.Errorf("opened again, the log ends with record %d; stored was %d, in doubt %d", last, told.Stored, told.Doubt)
	}
	append100(l, last+1)
	durable := l.Position().Durable
	if durable != last+100 {
		t.Errorf("%+v; want %d durable", l.Position(), last+100)
	}
	// what the log calls durable survives, though the kernel took some of it for written before
	for seed := range uint64(20) {
		l, err := Open(small(faulty{d.Crash(seed)}, policy))
		if err != nil {
			t.Fatal(err)
		}
		if last := readAll(t, l.NewReader(0), 1); last < durable {
			t.Errorf("after a cut the log ends with record %d, %d was durable", last, durable)
		}
		closeLog(t, l)
	}
	closeLog(t, l)
}

// A disk that fails now and then in any operation, and an owner who opens the log again: nothing
// that was durable is lost, and what the log has taken is in it, or the owner knows that it is not.
func TestPassingErrorsAnywhere(t *testing.T) {
	seeds := uint64(12)
	if testing.Short() {
		seeds = 6
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { t.Parallel(); passingErrorsAnywhere(t, seed) })
	}
}

func passingErrorsAnywhere(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 14))
	d := fault.New()
	errs := slices.Collect(maps.Values(passing))
	var mu sync.Mutex
	faults := rand.New(rand.NewPCG(seed, 15))
	odds := 5 + rng.IntN(60)
	inject := func(fault.Op, string) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		if faults.IntN(odds) > 0 {
			return 0, nil
		}
		return faults.IntN(2000), errs[faults.IntN(len(errs))]
	}
	cfg := small(faulty{d}, []SyncPolicy{SyncAlways, SyncBatch, SyncInterval}[seed%3])
	if seed%2 == 1 {
		cfg.KeepBytes, cfg.OnFull = 5*cfg.SegmentBytes, DropOldest
	}
	l := open(t, cfg)
	reopen := func() (next uint64) {
		durable := l.Position().Durable
		_ = l.Close()
		cfg.Expect.Last = durable
		for {
			var err error
			if l, err = Open(cfg); err == nil {
				break
			}
			if corrupt := (*CorruptError)(nil); errors.As(err, &corrupt) {
				t.Fatal(err)
			}
		}
		if r := l.Recovered(); r.Last < durable || len(r.Missing) > 0 {
			t.Fatalf("opened again: %+v; %d was durable", r, durable)
		}
		return l.Recovered().Last + 1
	}
	next := uint64(1)
	for round := range 6 {
		d.SetInject(inject)
		for range 300 {
			_, err := l.TryAppend(0, 1, payload(next))
			switch {
			case err == nil:
				next++
			case errors.Is(err, ErrFailed):
				next = reopen() // what is behind it was not written: it is offered again
			case !errors.Is(err, ErrBusy) && !errors.Is(err, ErrDiskFull):
				t.Fatal(err)
			}
			runtime.Gosched()
		}
		d.SetInject(nil)
		for late := time.Now().Add(patience); l.Position().Stored < next-1; runtime.Gosched() {
			if l.Position().Err != nil {
				next = reopen()
			}
			if time.Now().After(late) {
				t.Fatalf("round %d: %+v, %d next", round, l.Position(), next)
			}
		}
		if err := l.Sync(); err != nil {
			t.Fatal(err)
		}
		// else retention takes away what is read
		for late := time.Now().Add(patience); l.shelf.overdue(); runtime.Gosched() {
			if time.Now().After(late) {
				t.Fatalf("round %d: retention does not come to its end: %+v", round, l.Position())
			}
		}
		first := l.Position().First
		if first > 1 && seed%2 == 0 {
			t.Fatalf("round %d: the log begins with record %d", round, first)
		}
		if last := readAll(t, l.NewReader(first), first); last != next-1 {
			t.Fatalf("round %d: read up to %d, want %d", round, last, next-1)
		}
		killed := d.Copy()
		for i, c := range []*fault.Dir{d.Crash(rng.Uint64()), d.Crash(rng.Uint64()), killed} {
			l := open(t, small(faulty{c}, SyncAlways)) // reports as missing nothing
			first := l.Position().First
			if last := readAll(t, l.NewReader(first), first); last < next-1 {
				t.Fatalf("round %d, cut %d: the log ends with record %d, %d was durable", round, i, last, next-1)
			}
			closeLog(t, l)
			if s, err := Verify(faulty{c}); err != nil || !s.Clean() {
				t.Fatalf("round %d, cut %d: %+v, %v", round, i, s, err)
			}
		}
	}
	closeLog(t, l)
}

// Close writes a batch that waited for room, and then what was staged behind it, whose producers
// wait: one of them leads that commit, and Close waits for it. Two leaders wrote to the same place.
func TestCloseWaitsForWhoLeads(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			d := fault.New()
			cfg := small(faulty{d}, SyncAlways)
			var told atomic.Pointer[Commit]
			cfg.OnCommit = func(c Commit) {
				if c.Err != nil {
					told.Store(&c)
				}
			}
			l := open(t, cfg)
			d.SetInject(func(op fault.Op, name string) (int, error) {
				if op == fault.OpWrite {
					return 0, syscall.ENOSPC
				}
				return 0, nil
			})
			var producers sync.WaitGroup
			for range 10 { // one waits for room, the others behind it
				producers.Go(func() {
					if _, err := l.Append(0, 1, payload(1)); err != nil {
						t.Errorf("Append: %v", err)
					}
				})
			}
			synctest.Wait()
			d.SetInject(nil)
			closeLog(t, l)
			producers.Wait()
			if c := told.Load(); c != nil {
				t.Errorf("OnCommit was told of %+v", c)
			}
			if s, err := Verify(faulty{d}); err != nil || len(s.Problems) > 0 || s.Records != 10 {
				t.Errorf("Verify: %+v, %v", s, err)
			}
		})
	}
}

// hungDir is a directory whose files do not answer when they are written to, from when it hangs on.
type hungDir struct {
	FS
	hangs   *atomic.Bool
	answers <-chan struct{}
}

type hungFile struct {
	File
	of hungDir
}

func (d hungDir) Open(name string) (File, error) {
	f, err := d.FS.Open(name)
	return hungFile{f, d}, err
}

func (f hungFile) WriteAt(b []byte, off int64) (int, error) {
	if f.of.hangs.Load() {
		<-f.of.answers
	}
	return f.File.WriteAt(b, off)
}

// A write that gives neither an error nor an end is a stall: it is told, and over with its end.
func TestAWriteWithoutAnAnswerIsAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, answers := fault.New(), make(chan struct{})
		closeLog(t, open(t, small(faulty{d}, SyncBatch)))
		disk := hungDir{faulty{d}, &atomic.Bool{}, answers}
		l := open(t, small(disk, SyncBatch))
		disk.hangs.Store(true)
		if _, err := l.TryAppend(1, 1, payload(1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(NoAnswer)
		if p := l.Position(); p.Stalled != nil {
			t.Errorf("after %v: %v", NoAnswer, p.Stalled)
		}
		time.Sleep(time.Second)
		if p := l.Position(); !errors.Is(p.Stalled, ErrNoAnswer) || p.Err != nil {
			t.Errorf("then: %v, %v; want %v", p.Stalled, p.Err, ErrNoAnswer)
		}
		close(answers)
		time.Sleep(time.Second)
		if p := l.Position(); p.Stalled != nil || p.Durable != 1 {
			t.Errorf("with an answer: %+v", p)
		}
		closeLog(t, l)
	})
}
