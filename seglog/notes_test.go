package seglog

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/internal/fault"
)

// Wire offsets and notes come back as they were appended, in their order, to readers that ask for
// notes; others get records only. That holds for readers inside and outside, after a kill, and
// after a repair.
func TestNotesAndOffsets(t *testing.T) {
	d := fault.New()
	l := open(t, small(faulty{d}, SyncBatch))
	var want []Record
	note := func(r Record, seq uint64, err error) {
		t.Helper()
		if err != nil || seq != uint64(len(want)+1) {
			t.Fatalf("%+v got %d, %v", r, seq, err)
		}
		r.Seq = seq
		want = append(want, r)
		if seq%20 == 0 {
			if err := l.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for n := range uint64(400) {
		time, stream := int64(n*10), uint32(n%3)
		switch n % 7 {
		case 0:
			lane := Lane{ID: [16]byte{1, byte(n), 15: 9}, Offset: n * 100}
			seq, err := l.TryAppendLane(stream, time, lane)
			note(Record{
				Kind: KindLane, Stream: stream, Time: time, Offset: NoOffset,
				Data: append(lane.ID[:], byte(n*100), byte(n*100>>8), 0, 0, 0, 0, 0, 0),
			}, seq, err)
		case 1:
			seq, err := l.TryAppendDrop(stream, time, Drop{n, n + 300, 2, "overflow_newest"})
			note(Record{Kind: KindDrop, Stream: stream, Time: time, Offset: NoOffset}, seq, err)
		case 2, 3:
			seq, err := l.AppendAt(stream, time, n<<40, payload(n))
			note(Record{Stream: stream, Time: time, Offset: n << 40, Data: payload(n)}, seq, err)
		case 4:
			seq, err := l.TryAppendAt(stream, time, 0, nil)
			note(Record{Stream: stream, Time: time, Offset: 0}, seq, err)
		default:
			seq, err := l.AppendAt(stream, time, NoOffset, payload(n))
			note(Record{Stream: stream, Time: time, Offset: NoOffset, Data: payload(n)}, seq, err)
		}
	}
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.TryAppendDrop(0, 0, Drop{Cause: strings.Repeat("x", maxCause+1)}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a long cause gives %v", err)
	}
	next := l.Position().Next
	for _, d := range []Drop{{From: 1}, {From: NoOffset, To: 7}} {
		if seq, err := l.TryAppendDrop(0, 0, d); seq != 0 || err == nil || l.Position().Next != next {
			t.Errorf("%+v ends before it begins, and is taken: %d, %v", d, seq, err)
		}
	}
	holds := func(what string, r *Reader, notes bool) {
		t.Helper()
		defer r.Close()
		if notes {
			r.Notes()
		}
		for _, w := range want {
			if w.Kind != KindRecord && !notes {
				continue
			}
			got, err := r.Next()
			if err != nil || got.Seq != w.Seq || got.Time != w.Time || got.Stream != w.Stream || got.Kind != w.Kind ||
				got.Offset != w.Offset {
				t.Fatalf("%s: %+v, %v; want %+v", what, got, err, w)
			}
			drop, isDrop := got.Drop()
			lane, isLane := got.Lane()
			switch n := got.Seq - 1; {
			case isDrop != (w.Kind == KindDrop) || isLane != (w.Kind == KindLane):
				t.Fatalf("%s: %+v is a drop: %t, a lane: %t", what, got, isDrop, isLane)
			case isDrop && drop != Drop{n, n + 300, 2, "overflow_newest"}:
				t.Fatalf("%s: %+v", what, drop)
			case isLane && (lane.Offset != n*100 || lane.ID != [16]byte{1, byte(n), 15: 9}):
				t.Fatalf("%s: %+v", what, lane)
			case !isDrop && !bytes.Equal(got.Data, w.Data):
				t.Fatalf("%s: record %d carries something else", what, got.Seq)
			}
		}
		if _, err := r.Next(); err != io.EOF {
			t.Errorf("%s: at the end %v", what, err)
		}
	}
	for _, notes := range []bool{true, false} {
		holds("inside", l.NewReader(0), notes)
		holds("outside", NewReader(faulty{d}, 0), notes)
		killed := open(t, small(faulty{d.Copy()}, SyncBatch))
		holds("after a kill", killed.NewReader(0), notes)
		closeLog(t, killed)
	}
	closeLog(t, l)
	s, err := Verify(faulty{d})
	if err != nil || s.Records+s.Notes != 400 || s.Notes != 115 || s.Last != 400 {
		t.Errorf("Verify: %+v, %v", s, err)
	}
	// all is rewritten, nothing is lost
	if err := d.Flip(segmentName(segmentsOf(t, d)[1]), headerCopy+3, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := Repair(faulty{d}); err != nil {
		t.Fatal(err)
	}
	holds("after a repair", NewReader(faulty{d}, 0), true)
}

// What is cut within a batch of notes and records, and was durable, is kept as it was.
func TestNotesOfABatchThatIsCut(t *testing.T) {
	d := fault.New()
	cfg := small(faulty{d}, SyncBatch)
	cfg.BatchDelay = 1 << 40
	l := open(t, cfg)
	for n := range uint64(10) {
		if _, err := l.TryAppendDrop(1, int64(n), Drop{From: n, To: n, Cause: "x"}); err != nil {
			t.Fatal(err)
		}
		if _, err := l.TryAppendAt(1, int64(n), n, payload(n)); err != nil {
			t.Fatal(err)
		}
	}
	closeLog(t, l)
	if err := d.Cut(segmentName(1), headerBytes+1000); err != nil {
		t.Fatal(err)
	}
	l, err := Open(cfg)
	if err != nil || len(l.Recovered().Missing) != 1 || l.Position().Next != 21 {
		t.Fatalf("%+v, %v", l.Recovered(), err)
	}
	r := l.NewReader(0)
	r.Notes()
	for n := uint64(1); n < l.Recovered().Missing[0].From; n++ {
		rec, err := r.Next()
		if d, ok := rec.Drop(); err != nil || ok != (n%2 == 1) || ok && d.From != n/2 || !ok && rec.Offset != n/2-1 {
			t.Errorf("entry %d is %+v, %v", n, rec, err)
		}
	}
	r.Close()
	closeLog(t, l)
}

// A kind of a later program's is passed over, and is no gap.
func TestLaterKindsArePassedOver(t *testing.T) {
	d := fault.New()
	l := open(t, small(faulty{d}, SyncAlways))
	for n := range uint64(9) {
		kind := uint32(kindRecord)
		if n%3 == 1 {
			kind = kindMax
		}
		if _, err := l.append(&entry{kind, 0, 1, NoOffset, payload(n + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	r := l.NewReader(0)
	r.Notes()
	for n := uint64(1); n <= 9; n++ {
		if n%3 == 2 {
			continue
		}
		if rec, err := r.Next(); err != nil || rec.Seq != n {
			t.Errorf("%+v, %v; want %d", rec, err, n)
		}
	}
	r.Close()
	closeLog(t, l)
	if s, err := Verify(faulty{d}); err != nil || len(s.Problems) > 0 || s.Records != 6 || s.Notes != 3 {
		t.Errorf("%+v, %v", s, err)
	}
}

// Appending allocates nothing, whatever is appended, and an offset costs eight bytes.
func TestAppendAllocatesNothing(t *testing.T) {
	dir, err := Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cfg := small(dir, SyncBatch)
	cfg.SegmentBytes, cfg.BufferBytes, cfg.BatchDelay, cfg.BatchRecords = 16<<20, 4<<20, 1<<40, 1<<30
	l := open(t, cfg)
	defer closeLog(t, l)
	data := make([]byte, 64)
	for name, put := range map[string]func() error{
		"TryAppend":     func() error { _, err := l.TryAppend(1, 2, data); return err },
		"Append":        func() error { _, err := l.Append(1, 2, data); return err },
		"TryAppendAt":   func() error { _, err := l.TryAppendAt(1, 2, 3, data); return err },
		"AppendAt":      func() error { _, err := l.AppendAt(1, 2, 3, data); return err },
		"TryAppendLane": func() error { _, err := l.TryAppendLane(1, 2, Lane{Offset: 5}); return err },
		"TryAppendDrop": func() error { _, err := l.TryAppendDrop(1, 2, Drop{1, 2, 3, "overflow_oldest"}); return err },
	} {
		if n := testing.AllocsPerRun(100, func() {
			if err := put(); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("%s: %.1f allocations", name, n)
		}
	}
	size := func(put func() (uint64, error)) int {
		before := len(l.open.buf)
		if _, err := put(); err != nil {
			t.Error(err)
		}
		return len(l.open.buf) - before
	}
	plain := size(func() (uint64, error) { return l.Append(1, 2, data) })
	if none := size(func() (uint64, error) { return l.AppendAt(1, 2, NoOffset, data) }); none != plain {
		t.Errorf("without an offset a record takes %d bytes, want %d", none, plain)
	}
	if wire := size(func() (uint64, error) { return l.AppendAt(1, 2, 7, data) }); wire != plain+8 {
		t.Errorf("with an offset a record takes %d bytes, want %d", wire, plain+8)
	}
}
