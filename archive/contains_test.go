package archive

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A search finds exactly the records whose data has the bytes, frames and quarantined bytes, with
// other conditions, and page by page.
func TestContains(t *testing.T) {
	path := t.TempDir()
	l := testLog(t, path)
	streams, err := LoadStreams(path)
	if err != nil {
		t.Fatal(err)
	}
	number := func(s Stream) uint32 {
		n, err := streams.Number(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	a, waste := number(Stream{Source: "a", Frame: "line"}), number(Stream{Source: "a", Frame: "line", Quarantine: true})
	b := number(Stream{Source: "b", Frame: "line"})
	for i := range 50 {
		data := fmt.Sprintf("value %d\r\n", i)
		if i%7 == 0 {
			data = "alarm " + data
		}
		appendRecord(t, l, []uint32{a, b}[i%2], int64(i+1), data)
	}
	appendRecord(t, l, waste, 60, string(Quarantined(0x616c61726d, []byte("noise")))) // its offset is no data
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	archive := Live(l, streams)
	for _, c := range []struct {
		contains string
		query    Query
		want     []uint64
	}{
		{"alarm", Query{}, []uint64{1, 8, 15, 22, 29, 36, 43, 50}},
		{"alarm", Query{Source: "b"}, []uint64{8, 22, 36, 50}},
		{"alarm", Query{From: 9, Until: 30}, []uint64{15, 22, 29}},
		{"hex:61 6c61726d 2076616c7565203720", Query{}, nil},
		{"hex:616c61726d2076616c75652037", Query{}, []uint64{8}},
		{"mral", Query{Quarantine: true}, nil},
		{"ois", Query{Quarantine: true}, []uint64{51}},
		{"", Query{From: 48}, []uint64{48, 49, 50}},
	} {
		q := c.query
		if q.Contains, err = ParseContains(c.contains); err != nil {
			t.Fatal(err)
		}
		if got := sequences(t, archive.Records(Cursor{Query: q})); !slices.Equal(got, c.want) {
			t.Errorf("%q %+v: %v, want %v", c.contains, c.query, got, c.want)
		}
		if got := pages(t, archive, q, Bounds{Records: 2, Bytes: 1 << 20, Search: time.Minute}); !slices.Equal(got,
			c.want) {
			t.Errorf("%q %+v, by pages: %v, want %v", c.contains, c.query, got, c.want)
		}
	}
}

// A page of a search that finds nothing ends in time, and names the place to go on.
func TestContainsGoesOn(t *testing.T) {
	path := t.TempDir()
	l := testLog(t, path)
	for i := range 100 {
		appendRecord(t, l, 1, int64(i+1), "nothing of the kind")
	}
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	streams, err := LoadStreams(path)
	if err != nil {
		t.Fatal(err)
	}
	q := Query{Contains: []byte("x"), From: 1}
	looked := 0
	for ended := false; !ended; looked++ {
		p, err := Live(l, streams).Page(q, Bounds{Records: 1, Bytes: 1, Search: time.Nanosecond},
			func(Record) error { return nil })
		if err != nil || !p.End && p.Last.Seq < q.From {
			t.Fatalf("%+v, %v: want a place behind %d", p, err, q.From)
		}
		q.From, ended = p.Last.Seq+1, p.End
	}
	if looked < 2 {
		t.Error("one page has looked at everything, whatever time it had")
	}
}

func TestParseContains(t *testing.T) {
	for _, wrong := range []string{"hex:", "hex:0", "hex:zz", strings.Repeat("x", MaxContains+1)} {
		if got, err := ParseContains(wrong); err == nil {
			t.Errorf("%.20q is %q, want an error", wrong, got)
		}
	}
}
