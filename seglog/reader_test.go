package seglog

import (
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tallywheel/tallywheel/internal/fault"
)

// An error of the disk passes, and the reader goes on where it was: nothing is passed over, and the
// error is not kept.
func TestReaderGoesOnAfterErrorsOfTheDisk(t *testing.T) {
	d := severalSegments(t, 900, true)
	errs := 0
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var mu sync.Mutex
		odds := 2 + rng.IntN(12)
		d.SetInject(func(op fault.Op, _ string) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			if (op == fault.OpRead || op == fault.OpOpen || op == fault.OpList) && rng.IntN(odds) == 0 {
				return 0, syscall.EIO
			}
			return 0, nil
		})
		r := NewReader(faulty{d}, 0)
		next, failed := uint64(1), 0
		for {
			rec, err := r.Next()
			if err == io.EOF {
				break
			}
			if errors.Is(err, syscall.EIO) {
				if failed++; failed > 10_000 {
					t.Fatalf("after record %d the error stays: %v", next-1, err)
				}
				continue
			}
			if err != nil || rec.Seq != next {
				t.Fatalf("record %d, %v; want %d", rec.Seq, err, next)
			}
			next++
		}
		if errs += failed; next != 901 {
			t.Errorf("%d records, %d errors", next-1, failed)
		}
		r.Close()
	}
	if errs == 0 { // one reader may meet none
		t.Error("there was no error")
	}
	d.SetInject(nil)
}

// A search by time and the last sequence are no guess where the disk does not answer.
func TestSearchesSayThatTheDiskDoesNotAnswer(t *testing.T) {
	d := severalSegments(t, 900, true)
	bases := segmentsOf(t, d)
	for _, base := range bases {
		if err := d.Remove(indexName(base)); err != nil {
			t.Fatal(err)
		}
	}
	for fails := range int64(40) {
		var reads atomic.Int64
		d.SetInject(func(op fault.Op, _ string) (int, error) {
			if op == fault.OpRead && reads.Add(1) == fails+1 {
				return 0, syscall.EIO
			}
			return 0, nil
		})
		if last, err := LastSequence(faulty{d}); err == nil && last != 900 {
			t.Errorf("after an error of read %d: the last sequence is %d, want 900", fails, last)
		}
		reads.Store(0)
		r := NewReader(faulty{d}, 0)
		if err := r.SeekTime(700); err == nil {
			if rec, err := r.Next(); err == nil && rec.Seq != 700 {
				t.Errorf("after an error of read %d: record %d, want 700", fails, rec.Seq)
			}
		} else if !errors.Is(err, syscall.EIO) {
			t.Error(err)
		}
		r.Close()
	}
	d.SetInject(nil)
}

// Damage in the newest segment looks like its end to who reads one batch after the other. Whoever
// reads the whole log is told.
func TestDamageInTheNewestSegmentIsNotTheEnd(t *testing.T) {
	pristine := severalSegments(t, 300, true)
	bases := segmentsOf(t, pristine)
	newest := bases[len(bases)-1]
	for off := int64(headerBytes); off < headerBytes+6000; off += 97 {
		d := pristine.Copy()
		if err := d.Flip(segmentName(newest), off, 1); err != nil {
			t.Fatal(err)
		}
		r := NewReader(faulty{d}, 0)
		last := uint64(0)
		for {
			rec, err := r.Next()
			if err != nil {
				if err != io.EOF {
					t.Fatal(err)
				}
				break
			}
			last = rec.Seq
		}
		var corrupt *CorruptError
		if err := r.End(); last < 300 && !errors.As(err, &corrupt) {
			t.Errorf("damage at %d: reading ends with record %d, and End gives %v", off, last, err)
		}
		r.Close()
	}
	r := NewReader(faulty{pristine}, 0)
	if last := func() (last uint64) {
		for {
			rec, err := r.Next()
			if err != nil {
				return last
			}
			last = rec.Seq
		}
	}(); last != 300 || r.End() != nil {
		t.Errorf("a log without damage ends with record %d, %v", last, r.End())
	}
	r.Close()
	gone := pristine.Copy()
	if err := gone.Remove(segmentName(newest)); err != nil {
		t.Fatal(err)
	}
	r = NewReader(faulty{gone}, newest-1)
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); err != io.EOF || r.End() == nil {
		t.Errorf("the newest segment is gone: %v, %v", err, r.End())
	}
	r.Close()
}

// A reader of the log that is being written knows how far it goes: damage is not taken for an end
// that may pass.
func TestLiveReaderTellsDamageFromTheEnd(t *testing.T) {
	d := fault.New()
	l := open(t, small(faulty{d}, SyncAlways))
	for n := range uint64(20) {
		if _, err := l.Append(0, 1, payload(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Flip(segmentName(1), headerBytes+2000, 1); err != nil {
		t.Fatal(err)
	}
	r := l.NewReader(0)
	var corrupt *CorruptError
	for range 21 {
		_, err := r.Next()
		if errors.As(err, &corrupt) {
			break
		}
		if err != nil {
			t.Errorf("Next gives %v, want a CorruptError", err)
			break
		}
	}
	if corrupt == nil {
		t.Error("the damage was not found")
	}
	r.Close()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// A reader that reads while the log is written is told of no damage that is not there.
func TestEndWhileTheLogIsWritten(t *testing.T) {
	d := fault.New()
	cfg := small(faulty{d}, SyncBatch)
	l := open(t, cfg)
	done := make(chan error, 1)
	const records = 6000
	go func() {
		for n := range uint64(records) {
			if _, err := l.Append(0, 1, payload(n+1)); err != nil {
				done <- err
				return
			}
		}
		done <- l.Sync()
	}()
	r := NewReader(faulty{d}, 0)
	for last := uint64(0); last < records; {
		rec, err := r.Next()
		switch {
		case err == io.EOF:
			if err := r.End(); err != nil {
				t.Fatal(err)
			}
		case err != nil || rec.Seq != last+1:
			t.Fatalf("record %d, %v follows %d", rec.Seq, err, last)
		default:
			last = rec.Seq
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r.Close()
	closeLog(t, l)
}

// listed counts how often a directory is listed.
type listed struct {
	faulty
	times *atomic.Int64
}

func (d listed) List() ([]string, error) { d.times.Add(1); return d.faulty.List() }

// Reading many segments lists the directory a few times, not for each segment: that made it
// quadratic.
func TestReadingManySegmentsListsThemOnce(t *testing.T) {
	d := fault.New()
	cfg := small(faulty{d}, SyncNever)
	cfg.SegmentBytes = 16 << 10
	l := open(t, cfg)
	const records = 12_000
	for n := range uint64(records) {
		if _, err := l.Append(0, int64(n), payload(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	closeLog(t, l)
	segments := len(segmentsOf(t, d))
	if segments < 150 {
		t.Fatalf("%d segments, want more", segments)
	}
	var times atomic.Int64
	for _, since := range []int64{0, records / 2} {
		times.Store(0)
		r := NewReader(listed{faulty{d}, &times}, 0)
		if since > 0 {
			if err := r.SeekTime(since); err != nil {
				t.Fatal(err)
			}
		}
		if last := readAll(t, r, uint64(since)+1); last != records {
			t.Errorf("read up to %d", last)
		}
		if n := times.Load(); n > 4 {
			t.Errorf("%d segments: listed %d times", segments, n)
		}
	}
	times.Store(0)
	if s, err := Verify(listed{faulty{d}, &times}); err != nil || !s.Clean() || times.Load() > 4 {
		t.Errorf("Verify: %+v, %v; listed %d times", s, err, times.Load())
	}
}

// openings counts, by name, how often segments are opened, and how often their first byte is read.
type openings struct {
	faulty
	opened, read map[string]int
}

func (o openings) Open(name string) (File, error) {
	f, err := o.faulty.Open(name)
	if _, ok := segmentBase(name); ok {
		o.opened[name]++
	}
	return firstByte{f, o.read, name}, err
}

type firstByte struct {
	File
	read map[string]int
	name string
}

func (f firstByte) ReadAt(b []byte, off int64) (int, error) {
	if off == 0 {
		f.read[f.name]++
	}
	return f.File.ReadAt(b, off)
}

// Verify opens a segment once, and reads its header once: opening is what many small segments cost.
// The start of a log looks at the header of each, and at no more of those that have an index.
func TestEachSegmentIsOpenedOnce(t *testing.T) {
	d := severalSegments(t, 3000, true)
	bases := segmentsOf(t, d)
	if len(bases) < 20 {
		t.Fatalf("%d segments, want more", len(bases))
	}
	once := func(what string, o openings, bases []uint64) {
		t.Helper()
		for _, base := range bases {
			if name := segmentName(base); o.opened[name] != 1 || o.read[name] != 1 {
				t.Errorf("%s opened %s %d times, and read its header %d times", what, name, o.opened[name],
					o.read[name])
			}
		}
	}
	counted := func() openings { return openings{faulty{d}, map[string]int{}, map[string]int{}} }
	o := counted()
	if s, err := Verify(o); err != nil || !s.Clean() || s.Segments != len(bases) {
		t.Fatalf("%+v, %v", s, err)
	}
	newest := len(bases) - 1
	once("Verify", o, bases[:newest]) // the index of the newest must be its own, so that one is looked at again
	o = counted()
	cfg := small(o, SyncBatch)
	cfg.SegmentBytes /= 2 // none is shorter: that would have to be read
	l := open(t, cfg)
	once("a start", o, bases[:newest-1]) // those from there on may not be durable
	closeLog(t, l)
}
