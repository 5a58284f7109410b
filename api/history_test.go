package api

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

func answerOf(t *testing.T, url string, v any) {
	t.Helper()
	code, body := get(t, url, nil)
	if code != 200 {
		t.Fatalf("%s: %d %s", url, code, body)
	}
	if err := json.Unmarshal([]byte(body), v); err != nil {
		t.Fatalf("%s: %v in %s", url, err, body)
	}
}

// A loss is listed with its source, its place and its cause, and the time that is given leads to
// the record behind it. The next start lists the one before, with what that had lost.
func TestLossesAndStarts(t *testing.T) {
	a := newDevice(t)
	dir := t.TempDir()
	in := func(c *config.Config) { c.Log.Dir = dir }
	g := start(t, in, a.source("a"))
	api := serve(t, g)
	c := a.connected(t)
	defer c.Close()
	write(t, c, append(frames(0, 3), frames(10, 3)...))
	stored(t, g, "a", 6)
	var list struct {
		Losses []struct {
			Source, Where, Cause, Unit string
			N                          int
			From, To, Start            time.Time
		}
		More int
	}
	testenv.Until(t, 10*time.Second, "the loss is listed", func() bool {
		answerOf(t, api.URL()+"api/v1/losses?source=a", &list)
		return len(list.Losses) > 0
	})
	l := list.Losses[0]
	if got := fmt.Sprintf("%s: %d %s %s, %s", l.Source, l.N, l.Unit, l.Cause,
		l.Where); got != "a: 7 frame never seen, wire" || !l.Start.IsZero() || len(list.Losses) != 1 || list.More != 0 {
		t.Errorf("%s; all: %+v", got, list)
	}
	var page struct{ Records []struct{ Number int } }
	answerOf(t, api.URL()+"api/v1/records?limit=10&from_time="+url.QueryEscape(l.To.Format(time.RFC3339Nano)), &page)
	if n := len(page.Records); n == 0 || page.Records[max(0, n-3)].Number != 10 { // what came in one read has one time
		t.Errorf("from the loss on: %+v, want frame 10 and those behind it", page.Records)
	}
	if code, body := get(t, api.URL()+"api/v1/losses?source=b", nil); code != 400 {
		t.Errorf("losses of another source: %d %s", code, body)
	}
	if err := api.Close(); err != nil {
		t.Error(err)
	}
	stop(t, g)

	g = start(t, in)
	defer stop(t, g)
	api = serve(t, g)
	defer api.Close()
	var before struct {
		Starts []struct {
			Since, At    time.Time
			End, Verdict string
			Level        string
			Sources      int
			LostWire     struct{ Frames int } `json:"lost_wire"`
		}
		More bool
	}
	answerOf(t, api.URL()+"api/v1/starts", &before)
	if len(before.Starts) != 1 || before.More {
		t.Fatalf("%+v, want one start", before)
	}
	list.Losses = nil
	answerOf(t, api.URL()+"api/v1/losses?source=a", &list)
	if len(list.Losses) != 1 || list.Losses[0].N != 7 || !list.Losses[0].Start.Equal(before.Starts[0].Since) {
		t.Errorf("after another start: %+v; want the loss, of the start at %v", list, before.Starts[0].Since)
	}
	if s := before.Starts[0]; s.End != "test" || s.Level != "bad" || s.Sources != 1 || s.LostWire.Frames != 7 ||
		s.Since.After(s.At) {
		t.Errorf("%+v", s)
	}
}

// The amounts of an earlier start, and the time that its verdict names, are of the whole start,
// also where something was acknowledged in it.
func TestStartsAreJudgedAsAWhole(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	lossy := ledger.Port{
		ID: "a", Proof: ledger.ProofNumbers, Heard: true,
		Frames: ledger.Frames{Missing: 7, MissingUnseen: 7},
	}
	since := now.Add(-2 * time.Hour)
	s := archive.StartSheet{
		End: "stopped", Identity: "00",
		Sheet: ledger.NewSheet(now.UnixNano(), since.UnixNano(), []ledger.Port{lossy}),
	}
	s.Sheet.Ack = &ledger.Ack{At: ledger.Time(now.Add(-time.Hour).UnixNano())}
	if err := s.Keep(dir); err != nil {
		t.Fatal(err)
	}
	g := start(t, func(c *config.Config) { c.Log.Dir = dir })
	defer stop(t, g)
	api := serve(t, g)
	defer api.Close()
	var before struct {
		Starts []struct {
			Verdict  string
			LostWire struct{ Frames int } `json:"lost_wire"`
			OtherLog bool                 `json:"other_log"`
		}
	}
	answerOf(t, api.URL()+"api/v1/starts", &before)
	want := "lost since " + since.Local().Format(time.DateTime)
	if len(before.Starts) != 1 || before.Starts[0].LostWire.Frames != 7 ||
		!strings.HasPrefix(before.Starts[0].Verdict, want) || !before.Starts[0].OtherLog {
		t.Errorf("%+v, want %q", before, want)
	}
}
