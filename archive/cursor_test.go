package archive

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/seglog"
)

func testLog(t *testing.T, path string) *seglog.Log {
	t.Helper()
	dir, err := seglog.Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := seglog.Open(seglog.Config{FS: dir, SegmentBytes: 64 << 10, MinFree: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func appendRecord(t *testing.T, l *seglog.Log, stream uint32, at int64, data string) {
	t.Helper()
	if _, err := l.Append(stream, at, []byte(data)); err != nil {
		t.Fatal(err)
	}
}

// next looks for the next record that answers the query.
func next(c *Cursor) (Record, error) {
	for {
		if r, ok, err := c.Look(); ok || err != nil {
			return r, err
		}
	}
}

// sequences walks to the end of what a cursor has.
func sequences(t *testing.T, c *Cursor) (all []uint64) {
	t.Helper()
	defer c.Close()
	for {
		r, err := next(c)
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r.Seq)
	}
}

// bounded is a page of at most so many records.
func bounded(records int) Bounds { return Bounds{Records: records, Bytes: 1 << 30, Search: time.Hour} }

// pages asks for page after page.
func pages(t *testing.T, a *Archive, q Query, b Bounds) (all []uint64) {
	t.Helper()
	for {
		n, bytes := 0, 0
		p, err := a.Page(q, b, func(r Record) error {
			all = append(all, r.Seq)
			n, bytes = n+1, bytes+len(r.Data)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if n > b.Records || n > 1 && bytes > b.Bytes {
			t.Fatalf("a page has %d records of %d bytes, beyond %+v", n, bytes, b)
		}
		if p.End {
			return all
		}
		if q.Back {
			if q.Before > 0 && p.Last.Seq >= q.Before {
				t.Fatalf("the page before %d ends with %d: whoever asks on never comes to an end", q.Before, p.Last.Seq)
			}
			if q.Before, err = a.ResumeBack(p.Last); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if p.Last.Seq < q.From {
			t.Fatalf("the page from %d ends with %d: whoever asks on never comes to an end", q.From, p.Last.Seq)
		}
		if q.From, err = a.Resume(p.Last); err != nil {
			t.Fatal(err)
		}
	}
}

// A query by time finds every record of that time, also those behind a step of the clock.
func TestPageByTimeAfterTheClockSteppedBack(t *testing.T) {
	l := testLog(t, t.TempDir())
	for _, at := range []int64{100, 200, 900, 950, 120, 210, 220} {
		appendRecord(t, l, 1, at, "x")
	}
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	a := Live(l, &Streams{all: []Stream{{Number: 1, Source: "a", Frame: "line"}}})
	for _, q := range []struct {
		since, until int64
		want         []uint64
	}{
		{150, 250, []uint64{2, 6, 7}},
		{0, 150, []uint64{1, 5}},
		{230, 0, []uint64{3, 4}},
	} {
		if got := pages(t, a, Query{Since: q.since, Until: q.until}, bounded(100)); !slices.Equal(got, q.want) {
			t.Errorf("%d to %d: records %v, want %v", q.since, q.until, got, q.want)
		}
	}
}

// Whatever is asked, in both directions, a cursor on the running log, one on its folder, and pages
// of any size find the same records: those that a look at each one finds.
func TestEveryWayFindsTheSameRecords(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 7))
		path := t.TempDir()
		l := testLog(t, path)
		streams, err := LoadStreams(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []Stream{
			{Source: "a", Frame: "line"},
			{Source: "b", Frame: "line"},
			{Source: "a", Frame: "line", Quarantine: true},
		} {
			if _, err := streams.Number(s); err != nil {
				t.Fatal(err)
			}
		}
		type record struct {
			stream uint32
			at     int64
		}
		var all []record
		now := int64(100_000)
		for range 1 + rng.IntN(2000) {
			now += int64(rng.IntN(20)) - int64(rng.IntN(40)/39*500) // the clock steps back now and then
			r := record{uint32(1 + rng.IntN(4)), max(1, now)}       // stream 4 is not in the table
			appendRecord(t, l, r.stream, r.at, string(Quarantined(1, make([]byte, rng.IntN(200)))))
			all = append(all, r)
		}
		if err := l.Sync(); err != nil {
			t.Fatal(err)
		}
		folder, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			q := Query{
				Source: []string{"", "a", "b"}[rng.IntN(3)], Quarantine: rng.IntN(3) == 0,
				From:  uint64(rng.IntN(2) * rng.IntN(len(all)+2)),
				Since: int64(rng.IntN(2)) * (1 + rng.Int64N(now+1000)),
			}
			if rng.IntN(3) == 0 {
				q.Until = 1 + rng.Int64N(now+1000)
			}
			if rng.IntN(2) == 0 {
				q.Back, q.From, q.Before = true, 0, q.From
			}
			var want []uint64
			for i, r := range all {
				seq := uint64(i + 1)
				source, waste := []string{"a", "b", "a", ""}[r.stream-1], r.stream == 3
				if seq >= q.From && (q.Before == 0 || seq < q.Before) && (q.Source == "" || q.Source == source) &&
					q.Quarantine == waste &&
					r.at >= q.Since && (q.Until == 0 || r.at <= q.Until) {
					want = append(want, seq)
				}
			}
			if q.Back {
				slices.Reverse(want)
			}
			live := Live(l, streams)
			for name, got := range map[string][]uint64{
				"the running log": sequences(t, live.Records(Cursor{Query: q})),
				"the folder":      sequences(t, folder.Records(Cursor{Query: q})),
				"pages":           pages(t, live, q, bounded(1+rng.IntN(300))),
				"small pages": pages(t, live, q,
					Bounds{Records: 1 << 20, Bytes: 500 + rng.IntN(20_000), Search: time.Hour}),
				"short pages": pages(t, live, q,
					Bounds{Records: 1 << 20, Bytes: 1 << 30, Search: time.Millisecond}),
			} {
				if !slices.Equal(got, want) {
					t.Fatalf("seed %d, %+v: %s has %v, want %v", seed, q, name, got, want)
				}
			}
		}
	}
}

// gapped is a log whose first records are gone, in a folder.
func gapped(t *testing.T) string {
	t.Helper()
	path := t.TempDir()
	dir, err := seglog.Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := seglog.Open(seglog.Config{FS: dir, SegmentBytes: 16 << 10, MinFree: -1})
	if err != nil {
		t.Fatal(err)
	}
	for i := int64(1); ; i++ {
		appendRecord(t, l, 1, i, string(make([]byte, 500)))
		if err := l.Sync(); err != nil {
			t.Fatal(err)
		}
		if s, err := seglog.Segments(dir); err != nil || len(s) > 2 {
			break
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	all, err := seglog.Segments(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(path, all[0].Name)); err != nil {
		t.Fatal(err)
	}
	return path
}

// Records that are gone are told once, before what follows them, and whoever is told may end the
// walk.
func TestGapIsTold(t *testing.T) {
	a, err := Open(gapped(t))
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	c := a.Records(Cursor{Query: Query{From: 2}, OnGap: func(g *seglog.GapError) error {
		told = append(told, fmt.Sprint(g.From))
		return nil
	}})
	defer c.Close()
	r, err := next(c)
	if err != nil || len(told) != 1 || told[0] != "2" || r.Seq <= 2 {
		t.Errorf("record %d, %v; told of gaps from %v", r.Seq, err, told)
	}
	var first uint64
	p, err := a.Page(Query{From: 2}, bounded(1), func(r Record) error { first = r.Seq; return nil })
	if err != nil || p.Gone != r.Seq-2 || first != r.Seq {
		t.Errorf("the page has %d gone, begins with %d, %v; want %d gone", p.Gone, first, err, r.Seq-2)
	}
	short := Bounds{Records: 10, Bytes: 1, Search: 1}
	p, err = a.Page(Query{From: 2}, short, func(Record) error { return nil })
	if err != nil || p.Gone != r.Seq-2 || p.Last.Seq != r.Seq-1 || p.End {
		t.Errorf("a page that has time for the gap only is %+v, %v; want it to end at %d", p, err, r.Seq)
	}
	enough := errors.New("enough")
	c2 := a.Records(Cursor{Query: Query{From: 2}, OnGap: func(*seglog.GapError) error { return enough }})
	defer c2.Close()
	if _, err := next(c2); !errors.Is(err, enough) {
		t.Errorf("the walk goes on with %v", err)
	}
}

// Damage in the newest segment looks like the end of the log; a cursor and a page say that it is
// none.
func TestDamageIsNotTheEnd(t *testing.T) {
	path := t.TempDir()
	dir, err := seglog.Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := seglog.Open(seglog.Config{FS: dir, SegmentBytes: 64 << 10, MinFree: -1})
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(20) {
		appendRecord(t, l, 1, 1+i, string(make([]byte, 500)))
		if err := l.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	segments, err := filepath.Glob(filepath.Join(path, "*.seg"))
	if err != nil || len(segments) != 1 {
		t.Fatal(segments, err)
	}
	b, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	b[5500] ^= 4
	if err := os.WriteFile(segments[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var damage *seglog.CorruptError
	last := uint64(0)
	p, err := a.Page(Query{}, bounded(100), func(r Record) error { last = r.Seq; return nil })
	if !errors.As(err, &damage) || last == 0 || p.Last.Seq != last {
		t.Errorf("the page ends with %v at %d, behind record %d", err, p.Last.Seq, last)
	}
	c := a.Records(Cursor{})
	defer c.Close()
	for err = nil; err == nil; {
		_, err = next(c)
	}
	if !errors.As(err, &damage) {
		t.Errorf("the cursor ends with %v", err)
	}
}

func TestOpenOfWhatIsNoLog(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); !errors.Is(err, ErrNone) {
		t.Errorf("an empty folder gives %v", err)
	}
	if _, err := Open(filepath.Join(dir, "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder gives %v", err)
	}
}

// Towards the oldest, a gap between two segments is told once, however short the pages are, and
// every record is in one of them.
func TestGapOnTheWayBack(t *testing.T) {
	path := t.TempDir()
	dir, err := seglog.Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := seglog.Open(seglog.Config{FS: dir, SegmentBytes: 16 << 10, MinFree: -1})
	if err != nil {
		t.Fatal(err)
	}
	const n = 200
	for i := range int64(n) {
		appendRecord(t, l, 1, i+1, string(make([]byte, 500)))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	segs, err := seglog.Segments(dir)
	if err != nil || len(segs) < 3 {
		t.Fatalf("%v, %v; want three segments", segs, err)
	}
	if err := os.Remove(filepath.Join(path, segs[1].Name)); err != nil {
		t.Fatal(err)
	}
	a, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	q, want, gone := Query{Back: true}, uint64(n), uint64(0)
	for looks := 0; ; looks++ {
		p, err := a.Page(q, Bounds{Records: 1, Bytes: 1, Search: 1}, func(r Record) error {
			if r.Seq != want {
				t.Errorf("record %d, want %d", r.Seq, want)
			}
			want--
			return nil
		})
		if err != nil || looks > n+2 {
			t.Fatalf("page %d: %v", looks, err)
		}
		want, gone = want-p.Gone, gone+p.Gone
		if p.End {
			break
		}
		q.Before = p.Last.Seq
	}
	if lost := segs[2].First - segs[1].First; want != 0 || gone != lost {
		t.Errorf("down to record %d, %d gone; want 0, and %d", want, gone, lost)
	}
}

// A recorder goes on with the log while somebody follows it: a device that connects, or a source
// that a reload adds, gets a number that the table had not when it was read.
func TestSourceThatComesWhileTheLogIsFollowed(t *testing.T) {
	path := t.TempDir()
	l := testLog(t, path)
	given, err := LoadStreams(path)
	if err != nil {
		t.Fatal(err)
	}
	give := func(source string) uint32 {
		t.Helper()
		number, err := given.Number(Stream{Source: source, Frame: "line"})
		if err != nil {
			t.Fatal(err)
		}
		return number
	}
	appendRecord(t, l, give("line-1"), 1, "a")
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	in, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	c := in.Records(Cursor{Query: Query{Source: "line-*"}})
	defer c.Close()
	found := func(want string) {
		t.Helper()
		if r, err := next(c); err != nil || r.Source != want {
			t.Errorf("the next record is of %q (%v), want %q", r.Source, err, want)
		}
	}
	found("line-1")
	const lost = 4711 // no table names it
	appendRecord(t, l, lost, 2, "b")
	appendRecord(t, l, give("line-2/10.0.0.7"), 3, "c")
	appendRecord(t, l, give("line-3"), 4, "d")
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	found("line-2/10.0.0.7")
	found("line-3")
	if s, ok := in.Streams.By(lost); ok {
		t.Errorf("stream %d is %+v, want none", lost, s)
	}
}
