package seglog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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
	"github.com/tallywheel/tallywheel/internal/testenv"
)

func TestMain(m *testing.M) { testenv.NoLeaks(m) }

// faulty makes a fault.Dir a seglog.FS: only the result types differ.
type faulty struct{ *fault.Dir }

func (d faulty) Create(name string) (File, error) { return file(d.Dir.Create(name)) }
func (d faulty) Open(name string) (File, error)   { return file(d.Dir.Open(name)) }

func file(f *fault.File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return f, nil
}

// small is a configuration whose segments fill fast.
func small(dir FS, policy SyncPolicy) Config {
	return Config{
		FS: dir, SegmentBytes: 32 << 10, BufferBytes: 4 << 10, Sync: policy, MinFree: -1,
		BatchDelay: time.Millisecond, SyncInterval: 2 * time.Millisecond,
	}
}

func open(t testing.TB, cfg Config) *Log {
	t.Helper()
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if m := l.Recovered().Missing; len(m) > 0 {
		t.Errorf("opening reports as missing %v", m)
	}
	return l
}

func closeLog(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// payload is what the record of that number carries in these tests, so that any reader can check
// it.
func payload(n uint64) []byte {
	rng := rand.New(rand.NewPCG(n, 77))
	b := fmt.Appendf(nil, "record %d ", n)
	for range rng.IntN(300) {
		b = append(b, byte(rng.Uint32()))
	}
	return b
}

// readAll reads every record and checks that numbers run from first without a hole and carry what
// they should.
func readAll(t testing.TB, r *Reader, first uint64) (last uint64) {
	t.Helper()
	return readPast(t, r, first, nil)
}

// readPast is readAll of a log of which cuts have taken what was not synced: each gap is one of
// those.
func readPast(t testing.TB, r *Reader, first uint64, gaps []Missing) (last uint64) {
	t.Helper()
	defer r.Close()
	last = first - 1
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return last
		}
		if gap := (*GapError)(nil); errors.As(err, &gap) && gap.From == last+1 && gap.Cause != GapDamage &&
			slices.ContainsFunc(gaps, func(m Missing) bool { return m.From == gap.From && m.To == gap.To }) {
			last = gap.To
			continue
		}
		if err != nil {
			t.Fatalf("after record %d: %v", last, err)
		}
		if rec.Seq != last+1 {
			t.Fatalf("record %d follows %d", rec.Seq, last)
		}
		if !bytes.Equal(rec.Data, payload(rec.Seq)) {
			t.Fatalf("record %d carries something else", rec.Seq)
		}
		last = rec.Seq
	}
}

var policies = map[string]SyncPolicy{
	"always": SyncAlways, "batch": SyncBatch, "interval": SyncInterval,
	"never": SyncNever,
}

func TestWriteReadReopen(t *testing.T) {
	for name, policy := range policies {
		t.Run(name, func(t *testing.T) {
			dir, err := Dir(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			next := uint64(1)
			for range 3 {
				l := open(t, small(dir, policy))
				if next > 1 && !l.Recovered().Clean {
					t.Error("a log that was closed is not found clean")
				}
				for range 700 {
					seq, err := l.Append(uint32(next%5), int64(next), payload(next))
					if err != nil || seq != next {
						t.Fatalf("Append gave %d, %v; want %d", seq, err, next)
					}
					next++
				}
				if err := l.Sync(); err != nil {
					t.Fatal(err)
				}
				if p := l.Position(); p.Durable != next-1 || p.Next != next {
					t.Errorf("after Sync: %+v, want all %d durable", p, next-1)
				}
				if last := readAll(t, l.NewReader(0), 1); last != next-1 {
					t.Errorf("read up to %d, want %d", last, next-1)
				}
				closeLog(t, l)
			}
			s, err := Verify(dir)
			if err != nil || !s.Clean() || len(s.Problems) > 0 || s.Records != next-1 || s.Segments < 3 {
				t.Errorf("Verify: %+v, %v; want %d records in several segments and no problem", s, err, next-1)
			}
			for _, from := range []uint64{1, 2, next / 2, next - 1} {
				r := NewReader(dir, from)
				if rec, err := r.Next(); err != nil || rec.Seq != from {
					t.Errorf("reading from %d gives %d, %v", from, rec.Seq, err)
				}
				if err := r.SeekTime(int64(from)); err != nil {
					t.Error(err)
				}
				if rec, err := r.Next(); err != nil || rec.Time != int64(from) {
					t.Errorf("reading from time %d gives %d, %v", from, rec.Time, err)
				}
				r.Close()
			}
		})
	}
}

// TestCloseIsSeenHoweverFullTheSegment: whatever room a batch would leave in the segment, the mark
// of a log that was closed in order has its place.
func TestCloseIsSeenHoweverFullTheSegment(t *testing.T) {
	const size = 1000
	for left := int64(0); left <= 4*commitBytes; left += alignment {
		cfg := small(faulty{fault.New()}, SyncAlways)
		l := open(t, cfg)
		room, batch := cfg.SegmentBytes-headerBytes, int64(frameLen(size)+commitBytes)
		for ; room >= 2*batch; room -= batch {
			if _, err := l.Append(1, 1, make([]byte, size)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := l.Append(1, 1, make([]byte, room-left-commitBytes-frameHeader)); err != nil {
			t.Fatal(err)
		}
		last := l.Position().Durable
		for range 3 { // with nothing appended meanwhile, too
			closeLog(t, l)
			l = open(t, cfg)
			if r := l.Recovered(); !r.Clean || r.Last != last {
				t.Errorf("with %d bytes left: %+v; want record %d and a clean end", left, r, last)
			}
		}
		closeLog(t, l)
	}
}

func TestManyProducersShareSyncs(t *testing.T) {
	d := fault.New()
	var syncs atomic.Int64
	cfg := small(faulty{d}, SyncAlways)
	l := open(t, cfg)
	d.SetInject(func(op fault.Op, _ string) (int, error) {
		if op == fault.OpSync {
			syncs.Add(1)
		}
		return 0, nil
	})
	const producers, each = 32, 100
	var wg sync.WaitGroup
	var seen sync.Map
	for p := range producers {
		wg.Go(func() {
			for range each {
				seq, err := l.Append(uint32(p), 1, []byte{byte(p)})
				if err != nil {
					t.Error(err)
					return
				}
				if _, twice := seen.LoadOrStore(seq, p); twice {
					t.Errorf("sequence %d was given twice", seq)
				}
				if durable := l.Position().Durable; durable < seq {
					t.Errorf("Append of %d returned, durable is %d", seq, durable)
				}
			}
		})
	}
	wg.Wait()
	closeLog(t, l)
	if n := syncs.Load(); n >= producers*each {
		t.Errorf("%d syncs for %d records: no group commit", n, producers*each)
	}
}

// After a cut at any moment, in any state that the disk may be in, everything that was durable is
// there.
func TestCrashStates(t *testing.T) {
	for name, policy := range policies {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(12) {
				crashOnce(t, policy, seed)
			}
		})
	}
}

func crashOnce(t *testing.T, policy SyncPolicy, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 5))
	d := fault.New()
	next := uint64(1)
	var gaps []Missing // what the cuts before have taken
	for round := range 4 {
		l := open(t, small(faulty{d}, policy))
		gaps = append(gaps, l.Recovered().Unsynced)
		durable := next - 1
		next = l.Position().Next
		if next <= durable {
			t.Fatalf("seed %d: only %d of %d durable records came back", seed, next-1, durable)
		}
		for range rng.IntN(400) {
			if _, err := l.Append(0, int64(next), payload(next)); err != nil {
				t.Fatal(err)
			}
			next++
			if policy != SyncAlways && rng.IntN(100) == 0 {
				if err := l.Sync(); err != nil {
					t.Fatal(err)
				}
			}
		}
		durable = l.Position().Durable
		crashed := d.Crash(seed*100 + uint64(round))
		for range 3 { // several states of the same moment
			c := d.Crash(rng.Uint64())
			said, err := readSaid(faulty{c}, false)
			if err != nil {
				t.Fatal(err)
			}
			bases := segmentsOf(t, c)
			given := max(said.stored, bases[len(bases)-1]-1)
			l2, err := Open(small(faulty{c}, policy))
			if err != nil {
				t.Fatalf("seed %d: open after the cut: %v", seed, err)
			}
			if next := l2.Position().Next; next <= given {
				t.Fatalf("seed %d: record %d is next, and %d was given", seed, next, given)
			}
			if last := readPast(t, l2.NewReader(0), 1, append(gaps, l2.Recovered().Unsynced)); last < durable {
				t.Fatalf("seed %d: read up to %d, durable was %d", seed, last, durable)
			}
			closeLog(t, l2)
			if s, err := Verify(faulty{c}); err != nil || len(s.Problems) > 0 {
				t.Fatalf("seed %d: after recovery: %+v, %v", seed, s.Problems, err)
			}
		}
		closeLog(t, l)
		d, next = crashed, durable+1
	}
}

func TestFailedSyncPoisons(t *testing.T) {
	for _, op := range []fault.Op{fault.OpSync, fault.OpWrite} {
		d := fault.New()
		var told Commit
		cfg := small(faulty{d}, SyncAlways)
		cfg.OnCommit = func(c Commit) { told = c }
		l := open(t, cfg)
		if _, err := l.Append(0, 1, payload(1)); err != nil {
			t.Fatal(err)
		}
		var once atomic.Bool
		d.SetInject(func(o fault.Op, name string) (int, error) {
			if o == op && !strings.HasSuffix(name, ".part") && !once.Swap(true) {
				return 3, syscall.EIO
			}
			return 0, nil
		})
		for range 2 { // the second time nothing would fail: the log must not believe it
			if _, err := l.Append(0, 2, payload(2)); !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
				t.Errorf("%s: Append gives %v, want ErrFailed for EIO", op, err)
			}
		}
		if told.Err == nil || told.Durable != 1 {
			t.Errorf("%s: OnCommit was told %+v, want the failure and 1 durable", op, told)
		}
		if err := l.Close(); !errors.Is(err, ErrFailed) {
			t.Errorf("%s: Close gives %v, want ErrFailed", op, err)
		}
		for seed := range uint64(20) {
			l, err := Open(small(faulty{d.Crash(seed)}, SyncAlways))
			if err != nil {
				t.Fatal(err)
			}
			if last := readAll(t, l.NewReader(0), 1); last < 1 {
				t.Errorf("%s: the record before the failure is gone", op)
			}
			closeLog(t, l)
		}
	}
}

func TestShortWritesAndInterruptsAreFinished(t *testing.T) {
	d := fault.New()
	l := open(t, small(faulty{d}, SyncAlways))
	rng := rand.New(rand.NewPCG(1, 1))
	var mu sync.Mutex
	d.SetInject(func(op fault.Op, _ string) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		if op == fault.OpWrite && rng.IntN(3) > 0 {
			return rng.IntN(200), []error{syscall.EINTR, io.ErrShortWrite}[rng.IntN(2)]
		}
		return 0, nil
	})
	for n := range uint64(500) {
		if _, err := l.Append(0, 1, payload(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	d.SetInject(nil)
	closeLog(t, l)
	if last := readAll(t, NewReader(faulty{d}, 0), 1); last != 500 {
		t.Errorf("read up to %d, want 500", last)
	}
}

func TestRetentionRecycles(t *testing.T) {
	d := fault.New()
	cfg := small(faulty{d}, SyncAlways)
	cfg.KeepBytes = 5 * cfg.SegmentBytes
	l := open(t, cfg)
	reader := l.NewReader(0) // reads on while segments are taken away below it
	var gone int
	for n := range uint64(6000) {
		if _, err := l.Append(0, 1, payload(n+1)); err != nil {
			t.Fatal(err)
		}
		if n%3 == 0 {
			var gap *GapError
			if _, err := reader.Next(); errors.As(err, &gap) {
				gone++
			} else if err != nil {
				t.Fatalf("reader: %v", err)
			}
		}
	}
	reader.Close()
	if gone == 0 {
		t.Error("the slow reader was told of no gap")
	}
	for late := time.Now().Add(patience); ; runtime.Gosched() { // it is the work of the background
		if p := l.Position(); p.First > 1 && p.Bytes <= cfg.KeepBytes {
			break
		} else if time.Now().After(late) {
			t.Fatalf("retention keeps too much: %+v", p)
		}
	}
	closeLog(t, l)
}

// Under SyncNever retention may drop a segment that never was synced, and a cut may bring its name
// back: with a hole in place of its records the log would end there, whatever was made durable
// behind it.
func TestSyncReachesBeyondWhatWasDropped(t *testing.T) {
	d := fault.New()
	l := open(t, small(faulty{d}, SyncNever))
	const records = 1000
	for n := range uint64(records) {
		if _, err := l.Append(0, 1, payload(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	for l.Position().Stored < records {
		runtime.Gosched()
	}
	l.shelf.mu.Lock()
	for range 2 {
		if _, ok := l.shelf.dropOldest(false, false); !ok {
			t.Error("nothing to drop")
		}
	}
	l.shelf.mu.Unlock()
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(50) {
		after := open(t, small(faulty{d.Crash(seed)}, SyncNever))
		if p := after.Position(); p.Next != records+1 {
			t.Errorf("seed %d: after a cut %d is next, %d was durable; recovery: %+v", seed, p.Next, records,
				after.Recovered())
		}
		closeLog(t, after)
	}
	closeLog(t, l)
}

func TestSecondWriterIsRefused(t *testing.T) {
	dir, err := Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := open(t, small(dir, SyncBatch))
	defer closeLog(t, l)
	if _, err := Open(small(dir, SyncBatch)); !errors.Is(err, ErrLocked) {
		t.Errorf("the second Open gives %v, want ErrLocked", err)
	}
}

func TestUncommittedIsInvisible(t *testing.T) {
	d := fault.New()
	cfg := small(faulty{d}, SyncBatch)
	cfg.BatchDelay = time.Hour
	l := open(t, cfg)
	if _, err := l.Append(0, 1, payload(1)); err != nil {
		t.Fatal(err)
	}
	r := l.NewReader(0)
	defer r.Close()
	if rec, err := r.Next(); err != io.EOF {
		t.Errorf("a staged record is read: %+v, %v", rec, err)
	}
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	if rec, err := r.Next(); err != nil || rec.Seq != 1 {
		t.Errorf("after Sync: %+v, %v", rec, err)
	}
	closeLog(t, l)
}

func TestBadConfigs(t *testing.T) {
	dir := faulty{fault.New()}
	for want, cfg := range map[string]Config{
		"FS is not set":  {},
		"segment size":   {FS: dir, SegmentBytes: 100},
		"staging buffer": {FS: dir, BufferBytes: 100},
		"negative limit": {FS: dir, KeepBytes: -1},
		"is expected":    {FS: dir, Expect: Extent{Last: 1 << 63}},
		"sync policy 4":  {FS: dir, Sync: SyncNever + 1}, // which synced as none of them does
		"full disk 2":    {FS: dir, OnFull: DropOldest + 1},
	} {
		if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%+v) gives %v, want %q", cfg, err, want)
		}
	}
	l := open(t, small(dir, SyncBatch))
	defer closeLog(t, l)
	if _, err := l.Append(0, 0, make([]byte, 1<<20)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a record of 1 MiB gives %v, want ErrTooLarge", err)
	}
	most := l.cfg.BufferBytes/2 - frameHeader
	if _, err := l.Append(0, 0, make([]byte, most+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a record of more than half of an empty buffer gives %v, want ErrTooLarge", err)
	}
	if _, err := l.Append(0, 0, make([]byte, most)); err != nil {
		t.Errorf("a record of half of a buffer: %v", err)
	}
}

func FuzzReader(f *testing.F) {
	d := fault.New()
	l := open(f, small(faulty{d}, SyncAlways))
	for n := range uint64(6) {
		if _, err := l.Append(0, 1, payload(n+1)); err != nil {
			f.Fatal(err)
		}
	}
	closeLog(f, l)
	whole := d.Bytes(segmentName(1))
	f.Add(whole[:8<<10])
	f.Add(whole[:headerBytes+100])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := fault.New()
		file, _ := d.Create(segmentName(1))
		if _, err := file.WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(faulty{d}); err != nil {
			t.Fatalf("Verify: %v", err)
		}
		r := NewReader(faulty{d}, 0)
		for range 10_000 {
			if _, err := r.Next(); err != nil {
				break
			}
		}
		r.Close()
	})
}

func rngFor(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x5E6)) }

// await waits for an error that somebody is told.
func await(t *testing.T, told <-chan error) error {
	t.Helper()
	select {
	case err := <-told:
		return err
	case <-time.After(patience):
		t.Fatal("nobody was told")
		return nil
	}
}
