package batch

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// some is a message of any frames.
func some(t *rapid.T) (h Header, body []byte, records []Record) {
	h = Header{
		Log:    [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "log")),
		Source: rapid.StringN(1, 40, -1).Draw(t, "source"), Frame: "line",
		Count: rapid.IntRange(1, 20).Draw(t, "count"), Prev: rapid.Uint64Range(0, 1<<40).Draw(t, "prev"),
		Gone: rapid.Uint64Range(0, 9).Draw(t, "gone"), Quarantine: rapid.Bool().Draw(t, "quarantine"),
	}
	h.Last = h.Prev
	for range h.Count {
		h.Last += rapid.Uint64Range(1, 1000).Draw(t, "step")
		r := Record{h.Last, rapid.Int64Min(0).Draw(t, "time"), rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(t, "data")}
		records, body, h.Time = append(records, r), Append(body, r), r.Time
	}
	h.First = records[0].Seq
	return h, body, records
}

// What was put into a message comes out of it.
func TestThereAndBack(t *testing.T) {
	testenv.Check(t, func(t *rapid.T) {
		h, body, want := some(t)
		m, err := Parse(h.Headers(false), body)
		if err != nil || m.Header != h {
			t.Fatalf("%+v comes back as %+v, %v", h, m.Header, err)
		}
		got := slices.Collect(m.Records())
		if !slices.EqualFunc(got, want, func(a, b Record) bool {
			return a.Seq == b.Seq && a.Time == b.Time && slices.Equal(a.Data, b.Data)
		}) {
			t.Fatalf("%v comes back as %v", want, got)
		}
		if h.Count == 1 {
			m, err := Parse(h.Headers(true), want[0].Data)
			bare := slices.Collect(m.Records())
			if err != nil || len(bare) != 1 || bare[0].Seq != h.First || !slices.Equal(bare[0].Data, want[0].Data) {
				t.Fatalf("%v comes back bare as %v, %v", want, bare, err)
			}
		}
	})
}

// A message of which a byte, or a header, is another is refused, or reads as something that holds
// together: never a crash, and never more or other frames than the headers say.
func TestDamage(t *testing.T) {
	testenv.Check(t, func(t *rapid.T) {
		h, body, _ := some(t)
		headers := h.Headers(false)
		if rapid.Bool().Draw(t, "in a header") {
			names := slices.Sorted(func(yield func(string) bool) {
				for name := range headers {
					if !yield(name) {
						return
					}
				}
			})
			name := rapid.SampledFrom(names).Draw(t, "name")
			headers[name] = []string{rapid.OneOf(rapid.String(), rapid.StringMatching(`-?[0-9]{0,20}`)).Draw(t,
				"value")}
		} else {
			at := rapid.IntRange(0, len(body)-1).Draw(t, "at")
			if rapid.Bool().Draw(t, "cut") {
				body = body[:at]
			} else {
				body[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			}
		}
		m, err := Parse(headers, body)
		if err != nil {
			return
		}
		n, last := 0, m.Prev
		for r := range m.Records() {
			if n++; r.Seq <= last {
				t.Fatalf("record %d behind %d", r.Seq, last)
			}
			last = r.Seq
		}
		if n != m.Count || last != m.Last {
			t.Fatalf("%d records up to %d of %+v", n, last, m.Header)
		}
	})
}

func TestForeign(t *testing.T) {
	if _, err := Parse(map[string][]string{"Other": {"1"}}, nil); !errors.Is(err, ErrForeign) {
		t.Errorf("a message of somebody else gives %v", err)
	}
}

// A chain finds each message that is missing, and each that comes again.
func TestChain(t *testing.T) {
	var c Chain
	for _, step := range []struct {
		prev, first, last uint64
		want              error
	}{
		{4, 5, 9, nil},
		{9, 12, 20, nil},
		{30, 33, 40, &GapError{"a", 20, 30, false}},
		{9, 12, 20, &DoubleError{"a", 40, 12}},
		{40, 41, 41, nil},
	} {
		err := c.Next(Header{Source: "a", Prev: step.prev, First: step.first, Last: step.last})
		if !reflect.DeepEqual(err, step.want) {
			t.Errorf("%d to %d: %v, want %v", step.first, step.last, err, step.want)
		}
	}
	if err := c.Next(Header{Source: "b", Prev: 1, First: 2, Last: 3}); err != nil {
		t.Errorf("the first of another source: %v", err)
	}
}
