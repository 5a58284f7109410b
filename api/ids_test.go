package api

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
)

// event is a server-sent event as a browser hands it on; one without a name and data has an id
// alone.
type event struct{ id, name, data string }

// events are those of a stream, as they come.
type eventReader struct {
	resp  *http.Response
	lines *bufio.Scanner
}

func openStream(t *testing.T, url, lastID string) *eventReader {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("X-Accel-Buffering") != "no" ||
		resp.Header.Get("Cache-Control") != "no-store" {
		b, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s with %q: %s, %v, %s", url, lastID, resp.Status, resp.Header, b)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	return &eventReader{resp, lines}
}

func (e *eventReader) close() { e.resp.Body.Close() }

func (e *eventReader) next(t *testing.T) (ev event) {
	t.Helper()
	for e.lines.Scan() {
		field, value, _ := strings.Cut(e.lines.Text(), ": ")
		switch field {
		case "id":
			ev.id = value
		case "event":
			ev.name = value
		case "data":
			ev.data = value
		case "":
			if value == "" && ev != (event{}) {
				return ev
			}
		}
	}
	t.Fatalf("the stream ended: %v", e.lines.Err())
	return ev
}

// reset reads a reset event.
func (e *eventReader) reset(t *testing.T, reason string, from, gone uint64) event {
	t.Helper()
	ev := e.next(t)
	var r resetEvent
	if err := json.Unmarshal([]byte(ev.data), &r); err != nil || ev.name != "reset" {
		t.Fatalf("%+v, %v; want a reset", ev, err)
	}
	if r.Reason != reason || r.From != from || r.Gone != gone || r.Cursor != ev.id || ev.id == "" {
		t.Errorf("%+v; want %s from %d, %d gone", ev, reason, from, gone)
	}
	return ev
}

func (e *eventReader) record(t *testing.T, seq uint64) event {
	t.Helper()
	ev := e.next(t)
	var r archive.Record
	if err := json.Unmarshal([]byte(ev.data), &r); err != nil || ev.name != "record" || r.Seq != seq || ev.id == "" {
		t.Fatalf("%+v, %v; want record %d with an id", ev, err, seq)
	}
	return ev
}

// An id is good for going on exactly behind it, by a stream or by pages, whoever gave it; one that
// is not, because the log is another, or ends before it, is told of, and nothing is passed over.
func TestIDsOfAStream(t *testing.T) { eachEngine(t, testIDsOfAStream) }

func testIDsOfAStream(t *testing.T) {
	g, s, c := served(t, nil, device.source)
	write(t, c, frames(0, 10))
	stored(t, g, "a", 10)
	url := s.URL() + "api/v1/"

	e := openStream(t, url+"stream", "")
	begun := e.next(t)
	if begun.name != "" || !strings.Contains(begun.id, "-10-") {
		t.Errorf("a stream begins with %+v; want the id of record 10", begun)
	}
	e.close()
	e = openStream(t, url+"stream?cursor="+begun.id, "") // as if nothing had come yet
	write(t, c, frames(10, 1))
	if first := e.next(t); first.id != begun.id {
		t.Errorf("the stream begins with %+v", first)
	}
	e.record(t, 11)
	e.close()

	_, body := get(t, url+"records?limit=4", nil)
	var page testPage
	if err := json.Unmarshal([]byte(body), &page); err != nil || len(page.Records) != 4 || page.Log == "" ||
		!strings.HasPrefix(page.Cursor, page.Log+"-4-") {
		t.Fatalf("%.300s, %v", body, err)
	}
	cursor := page.Cursor
	// no log has that identity
	foreign, zeros := strings.Repeat("0a", 16)+cursor[32:], strings.Repeat("00", 16)+cursor[32:]
	for _, id := range []string{cursor, "4"} {
		e = openStream(t, url+"stream?from_seq=9", id) // what the client has goes before what it asked for once
		if first := e.next(t); first.id != cursor {
			t.Errorf("%s: the stream begins with %+v", id, first)
		}
		last := e.record(t, 5)
		e.close()
		_, body = get(t, url+"records?limit=1&cursor="+last.id, nil)
		if err := json.Unmarshal([]byte(body), &page); err != nil || page.Records[0].Seq != 6 {
			t.Errorf("behind event 5 a page has %.300s, %v", body, err)
		}
	}
	e = openStream(t, url+"stream", foreign)
	e.reset(t, archive.OtherLog, 1, 0)
	e.record(t, 1)
	e.close()
	for _, id := range []string{"12", page.Log + "-12", page.Log + "-4000000-1"} {
		e = openStream(t, url+"stream", id)
		e.reset(t, archive.BeyondEnd, 1, 0) // this start has made all there is
		e.record(t, 1)
		e.close()
	}
	e = openStream(t, url+"stream", page.Log+"-4-1") // another record had that number
	e.reset(t, archive.Replaced, 1, 0)
	e.close()
	for query, want := range map[string]int{
		"cursor=" + foreign: 409, "cursor=" + page.Log + "-12": 409, "from_seq=13": 409, "from_seq=12": 200,
		"cursor=12":  200,
		"cursor=x-1": 400, "from_seq=" + foreign: 400, "cursor=" + zeros: 400,
	} {
		if code, body := get(t, url+"records?"+query, nil); code != want {
			t.Errorf("%s: %d, %s; want %d", query, code, body, want)
		}
	}
	if resp, err := http.Head(url + "stream"); err != nil {
		t.Error(err)
	} else if resp.Body.Close(); resp.StatusCode != http.StatusOK {
		t.Errorf("HEAD: %s", resp.Status)
	}
	for _, id := range []string{"nonsense", zeros} {
		if code, body := get(t, url+"stream",
			func(r *http.Request) { r.Header.Set("Last-Event-ID", id) }); code != 400 {
			t.Errorf("%s, an id that is none: %d, %s", id, code, body)
		}
	}
}

// What retention has removed behind an id is told with its count, once.
func TestIDBeforeWhatIsKept(t *testing.T) {
	s, first := servedWithoutTheOldest(t)
	e := openStream(t, s.URL()+"api/v1/stream", "10")
	e.reset(t, archive.Removed, first, first-11)
	e.record(t, first)
	e.close()
	var page testPage
	_, body := get(t, s.URL()+"api/v1/records?limit=1&from_seq=11", nil)
	if err := json.Unmarshal([]byte(body), &page); err != nil || page.Gone != first-11 || page.Records[0].Seq != first {
		t.Errorf("%.300s, %v; want %d gone", body, err, first-11)
	}
	// the first two: the oldest there is
	for all, gone := range map[string]uint64{
		"": 0, "?from_seq=0": 0, "?from_seq=1": first - 1,
		"?cursor=1": first - 1,
	} {
		_, body = get(t, s.URL()+"api/v1/records"+all, nil)
		if err := json.Unmarshal([]byte(body), &page); err != nil || page.Gone != gone || page.Records[0].Seq != first {
			t.Errorf("%s: %.300s, %v; want %d gone", all, body, err, gone)
		}
	}
	// a time that is not after the oldest record: what was before it may have been made then
	const old = "from_time=2020-01-01T00:00:00Z"
	from := func(r archive.Record) string { return "from_time=" + r.Time.Format(time.RFC3339Nano) }
	_, last := pageOf(t, s.URL()+"api/v1/records?order=newest&limit=1")
	for times, gone := range map[string]uint64{
		old: first - 1, from(page.Records[0]): first - 1, from(last.Records[0]): 0,
		old + "&to_time=2020-01-02T00:00:00Z": first - 1, // all that was made then may be gone
		old + "&from_seq=0":                   0,         // the oldest there is
	} {
		if _, p := pageOf(t, s.URL()+"api/v1/records?limit=1&"+times); p.Gone != gone {
			t.Errorf("%s: %d gone; want %d", times, p.Gone, gone)
		} else if _, p = pageOf(t, s.URL()+"api/v1/records?limit=1&"+old+"&cursor="+p.Cursor); p.Gone != 0 {
			t.Errorf("%s: the page behind has %d gone; it is told once", times, p.Gone)
		}
	}
	e = openStream(t, s.URL()+"api/v1/stream?"+old, "")
	e.next(t) // its first id
	if ev := e.next(t); ev.name != "gone" || ev.data != fmt.Sprintf(`{"from":1,"to":%d}`, first-1) {
		t.Errorf("a stream from a time: %s %.60s; want 1 to %d gone", ev.name, ev.data, first-1)
	}
	e.record(t, first)
	e.close()
	for _, n := range []string{"1", "7"} { // a reset says what was asked for
		e := openStream(t, s.URL()+"api/v1/stream?from_seq="+n, "")
		if r := e.reset(t, archive.Removed, first, first-uint64(n[0]-'0')); !strings.Contains(r.data,
			`"asked":"`+n+`"`) {
			t.Errorf("from_seq=%s: the reset says %s", n, r.data)
		}
		e.close()
	}
}

// pageOf asks for a page of records; its sequences, and the page.
func pageOf(t *testing.T, url string) (seqs []uint64, p testPage) {
	t.Helper()
	answerOf(t, url, &p)
	for _, r := range p.Records {
		seqs = append(seqs, r.Seq)
	}
	return seqs, p
}

// With order=newest a page begins at the newest record, or at the one that is named, and goes
// towards the oldest: whoever has found a place can look at what was before it.
func TestPagesTowardsTheOldest(t *testing.T) {
	g, s, c := served(t, nil, device.source)
	write(t, c, frames(0, 10))
	stored(t, g, "a", 10)
	newest := s.URL() + "api/v1/records?order=newest&"
	var all []uint64
	for cursor, end := "", false; !end; {
		seqs, p := pageOf(t, newest+"limit=4&cursor="+cursor)
		if len(seqs) > 4 || p.Gone != 0 {
			t.Fatalf("a page has %v, %d gone", seqs, p.Gone)
		}
		all, cursor, end = append(all, seqs...), p.Cursor, p.End
	}
	if fmt.Sprint(all) != "[10 9 8 7 6 5 4 3 2 1]" {
		t.Errorf("from the newest on: %v", all)
	}
	_, forward := pageOf(t, s.URL()+"api/v1/records?limit=4")
	// there is nothing before the oldest, however often that is asked for
	for cursor, n := forward.Log+"-1", 0; n < 2; n++ {
		seqs, p := pageOf(t, newest+"cursor="+cursor)
		if cursor = p.Cursor; len(seqs) > 0 || !p.End {
			t.Errorf("before the oldest record: %v, the end: %v", seqs, p.End)
		}
	}
	foreign := strings.Repeat("0a", 16) + forward.Cursor[32:]
	for query, want := range map[string]string{
		"cursor=" + forward.Cursor:           "[3 2 1]", // what was before the place that was found
		"cursor=4":                           "[4 3 2 1]",
		"from_seq=4":                         "[4 3 2 1]",
		"from_seq=10&limit=1":                "[10]",
		"from_seq=1":                         "[1]",
		"source=a&contains=hex:a55a&limit=2": "[10 9]",
		"contains=nothing":                   "[]",
		"to_time=" + url.QueryEscape("1999-01-01T00:00:00Z"):   "[]",
		"from_time=" + url.QueryEscape("2100-01-01T00:00:00Z"): "[]",
		"cursor=" + forward.Log + "-11":                        "[10 9 8 7 6 5 4 3 2 1]", // where a 409 sends to
		"cursor=" + forward.Log + "-0":                         "[10 9 8 7 6 5 4 3 2 1]",
	} {
		if seqs, p := pageOf(t, newest+query); fmt.Sprint(seqs) != want || p.Log != forward.Log {
			t.Errorf("%s: %v, want %s", query, seqs, want)
		}
	}
	for query, want := range map[string]int{
		"cursor=" + foreign: 409, "cursor=" + forward.Log + "-12": 409, "cursor=" + forward.Log + "-4-1": 409,
		"from_seq=11": 409, "cursor=x-1": 400,
	} {
		code, body := get(t, newest+query, nil)
		if code != want {
			t.Errorf("%s: %d, %s; want %d", query, code, body, want)
		}
		var no struct{ Cursor string }
		if err := json.Unmarshal([]byte(body), &no); code == 409 {
			if seqs, _ := pageOf(t, newest+"cursor="+no.Cursor); err != nil || len(seqs) == 0 {
				t.Errorf("%s: %v; the cursor of the answer leads to %v", query, err, seqs)
			}
		}
	}
	for _, query := range []string{"records?order=down", "stream?order=newest"} {
		if code, body := get(t, s.URL()+"api/v1/"+query, nil); code != 400 {
			t.Errorf("%s: %d, %s; want 400", query, code, body)
		}
	}
}
