package h1

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallywheel/tallywheel/server/internal/loop"
	"github.com/tallywheel/tallywheel/server/internal/loop/looptest"
)

// largePath is answered with more than a connection may have waiting.
var largePath = "/large/" + strings.Repeat("x", 40)

// queuedPath is answered with more than such a client takes, and less than the loop does.
var queuedPath = "/" + strings.Repeat("x", 1500)

// get is a request for a path.
func get(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n" }

const ms = time.Millisecond

// at is text that a client sends after so many ms.
func at(n time.Duration, text string) looptest.Piece {
	return looptest.Piece{At: n * ms, Send: []byte(text)}
}

// TestDeadlines holds the tables of Inline.deadline and Session.readHead: which time-out acts in
// which state, and what it counts from. The time is a test's own.
func TestDeadlines(t *testing.T) {
	type piece = looptest.Piece
	cases := []struct {
		name            string
		head, idle      time.Duration // time-outs
		write           time.Duration
		send            string
		later           []piece
		reads, drain    time.Duration // when
		answers         int           // -1: as many as there is room for
		refused, closes bool          // the last one by 408; … says that the connection ends
		ended           time.Duration
	}{
		{
			name: "an answer that waits for its client, and a request behind it in two pieces",
			head: 1000 * ms, idle: 10_000 * ms, send: get(largePath) + "GE",
			later: []piece{at(50, get("/x")[2:])}, reads: 2500 * ms, answers: 2, ended: 12_500 * ms,
		},
		{
			name: "the idle time counts from the newest answer", idle: 1000 * ms, send: get("/1"),
			later:   []piece{at(800, get("/2")+"G"), at(1200, get("/3")[1:])},
			answers: 3, ended: 2200 * ms,
		},
		{
			name: "less than 4 bytes are no request", idle: 1000 * ms, send: get("/1") + "G",
			later: []piece{at(500, "E"), at(800, "T")}, answers: 1, ended: 1000 * ms,
		},
		{
			name: "… nor is an empty line", idle: 1000 * ms, send: get("/1") + "\r",
			later: []piece{at(500, "\n"), at(800, "G")}, answers: 1, ended: 1000 * ms,
		},
		{
			name: "the idle time counts from the end of an answer", idle: 1000 * ms, send: get(largePath),
			reads: 2500 * ms, answers: 1, ended: 3500 * ms,
		},
		{
			name: "… so does that of a head which has begun", head: 1000 * ms, send: get(largePath) + "GET /x HT",
			reads: 2500 * ms, answers: 2, refused: true, ended: 3500 * ms,
		},
		{
			name: "… of one that waits in the loop, too", idle: 1000 * ms, send: get(queuedPath),
			reads: 2500 * ms, answers: 1, ended: 3500 * ms,
		},
		{
			name: "… also where the server ends meanwhile", send: get(queuedPath), idle: 9000 * ms,
			drain: 200 * ms, reads: 2500 * ms, answers: 1, ended: 2500*ms + loop.DuckFor,
		},
		{
			name: "a client that takes no answer has the time of a write", idle: 9000 * ms, write: 1500 * ms,
			send: get(queuedPath), reads: 5000 * ms, answers: -1, ended: 1500 * ms,
		},
		{
			name: "the time of a head counts from its 4th byte", head: 1000 * ms, idle: 9000 * ms,
			send:  get("/1") + "G",
			later: []piece{at(1700, "ET /x"), at(2300, " HT")}, answers: 2, refused: true, ended: 2700 * ms,
		},
		{
			name: "a server that ends waits no longer than for the answer", send: get(largePath) + "G",
			drain: 200 * ms, reads: 700 * ms, answers: 1, ended: 700*ms + loop.DuckFor,
		},
		{
			name: "… and not for the rest of a few bytes", send: get("/1") + "G", idle: 9000 * ms,
			drain: 200 * ms, answers: 1, ended: 200*ms + loop.DuckFor,
		},
		{
			name: "… and not longer for one more of them", send: get("/1") + "\r", idle: 9000 * ms,
			later: []piece{at(100, "\nG")}, drain: 200 * ms, answers: 1, ended: 200*ms + loop.DuckFor,
		},
		{
			name: "… but answers a request that is whole in time", send: get("/1") + "G", drain: 200 * ms,
			later: []piece{at(500, get("/2")[1:])}, answers: 2, closes: true, ended: 500*ms + loop.LingerFor,
		},
		{
			name: "… waits for the rest of a first head as long as net/http", send: "GET / HT",
			drain: 200 * ms, answers: 1, refused: true, ended: loop.HeadFor,
		},
		{
			name: "… and hardly where that is late", send: "GET / HT",
			drain: 7000 * ms, answers: 1, refused: true, ended: 7000*ms + loop.DuckFor,
		},
		{
			name: "… for that of a later head, too", send: get("/1") + "GET /x HT", idle: 9000 * ms,
			drain: 200 * ms, answers: 2, refused: true, ended: loop.HeadFor,
		},
		{
			name: "… for no longer than it would otherwise", send: "GET / HT", head: 1000 * ms,
			drain: 200 * ms, answers: 1, refused: true, ended: 1000 * ms,
		},
		{
			name: "… and lets the body of such a head take its time", send: "POST / HTTP/1.1\r\nHost: a\r\nContent-Le",
			drain: 200 * ms, later: []piece{at(3000, "ngth: 3\r\n\r\n"), at(9000, "abc")},
			answers: 1, closes: true, ended: 9000*ms + loop.LingerFor,
		},
	}
	for app := range apps {
		for _, c := range cases {
			t.Run(app+"/"+c.name, func(t *testing.T) {
				cfg := testConfig(http.HandlerFunc(echoHandler))
				cfg.ReadHeaderTimeout, cfg.IdleTimeout, cfg.WriteTimeout = c.head, c.idle, c.write
				client := &looptest.Client{Send: []byte(c.send), Later: c.later, Reads: c.reads, End: looptest.Never}
				synctest.Test(t, func(t *testing.T) {
					net := apps[app](cfg)
					net.Seed, net.Gentle, net.Drain = 1, true, c.drain
					if err := looptest.Run(net, []*looptest.Client{client}); err != nil {
						t.Fatal(err)
					}
				})
				if n := bytes.Count(client.Got, []byte("HTTP/1.1 ")); n != c.answers && c.answers >= 0 {
					t.Errorf("%d answers, want %d: … %q", n, c.answers, client.Got[max(len(client.Got)-200, 0):])
				}
				if strings.Contains(c.send, largePath) &&
					!bytes.Contains(client.Got, bytes.Repeat([]byte(largePath), 3000)) {
					t.Errorf("the large answer is not whole: %d bytes", len(client.Got))
				}
				if got := bytes.Contains(client.Got, []byte(" 408 ")); got != c.refused {
					t.Errorf("refused: %v, want %v", got, c.refused)
				}
				if got := bytes.Contains(client.Got, []byte("Connection: close")); got != (c.closes || c.refused) {
					t.Errorf("the client was told of the end: %v", got)
				}
				late := 50 * ms // the network's clock has a tick of 1 ms
				if c.refused {
					late += loop.LingerFor
				}
				if client.Ended < c.ended || client.Ended > c.ended+late {
					t.Errorf("the connection ended after %v, want %v", client.Ended, c.ended)
				}
			})
		}
	}
}

// orderStream notes the order of writes, deadlines and reads, and gives its input whole.
type orderStream struct {
	memoryStream
	mu  sync.Mutex // output that is late is written by a timer
	did []string
}

func (o *orderStream) note(s string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Contains(o.did[max(len(o.did)-1, 0):], s) {
		o.did = append(o.did, s)
	}
}

func (o *orderStream) Read(b []byte) (int, error) {
	o.note("read")
	return o.memoryStream.Read(b)
}

func (o *orderStream) Write(b []byte) (int, error) {
	o.note("write")
	return o.memoryStream.Write(b)
}

func (o *orderStream) SetReadDeadline(at time.Time) error {
	if !at.IsZero() {
		o.note("deadline")
	}
	return nil
}

// TestDeadlinesFollowWrites: an answer may wait long for its client before the stream takes it. The
// time for what comes next begins behind that.
func TestDeadlinesFollowWrites(t *testing.T) {
	for _, rest := range []string{"G", "GET /x HT"} {
		cfg := testConfig(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "a") }))
		cfg.ReadHeaderTimeout, cfg.IdleTimeout = time.Hour, time.Hour
		o := &orderStream{memoryStream: memoryStream{in: []byte(get("/") + rest)}}
		_ = NewSession(cfg, o).Serve()
		if got := o.did[slices.Index(o.did, "write"):]; len(got) < 3 || got[1] != "deadline" || got[2] != "read" {
			t.Errorf("behind an answer and %q the session did %v, want write, deadline, read", rest, got)
		}
	}
}
