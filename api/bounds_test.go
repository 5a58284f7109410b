package api

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/recorder"
	"github.com/tallywheel/tallywheel/server"
)

// large is a source whose records have size bytes.
func (d device) large(id string) config.Source {
	return config.Source{
		ID: id, TCP: &config.Net{Dial: d.l.Addr().String()},
		Frame: config.Frame{Kind: "length", Prefix: 2, Endian: "big", Max: 16_100}, Buffer: 1 << 20,
	}
}

// lengths is n records of size bytes for it.
func lengths(n, size int) []byte {
	one := append([]byte{byte(size >> 8), byte(size)}, bytes.Repeat([]byte("x"), size)...)
	return bytes.Repeat(one, n)
}

// largest is a client that notes the longest single write to it, and for how long it may take each.
type largest struct {
	httptest.ResponseRecorder
	bytes    int
	deadline time.Time
}

func (l *largest) Write(b []byte) (int, error) {
	l.bytes = max(l.bytes, len(b))
	return l.ResponseRecorder.Write(b)
}

func (l *largest) SetWriteDeadline(t time.Time) error { l.deadline = t; return nil }

// However many records are asked for, and however large they are, a page has a bound in bytes, is
// never in memory as a whole, and the pages together have everything.
func TestPagesAreBoundedInBytes(t *testing.T) {
	g, s, c := served(t, nil, device.large)
	const n, size = 700, 16_000
	write(t, c, lengths(n, size))
	stored(t, g, "a", n)
	seen, pages := 0, 0
	for cursor := ""; ; pages++ {
		w := &largest{ResponseRecorder: *httptest.NewRecorder()}
		s.records(w, httptest.NewRequest("GET", "/api/v1/records?limit=10000&cursor="+cursor, nil))
		var p testPage
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Fatalf("page %d: %v", pages, err)
		}
		payload := 0
		for _, r := range p.Records {
			if payload += r.Len; r.Seq != uint64(seen+1) {
				t.Fatalf("record %d follows %d", r.Seq, seen)
			}
			seen++
		}
		if payload > pageBytes || w.bytes > 4*size {
			t.Fatalf("a page has %d bytes of records, written in parts of up to %d", payload, w.bytes)
		}
		if left := time.Until(w.deadline); left < writeTimeout/2 {
			t.Errorf("the client has %v to take a part", left)
		}
		if cursor = p.Cursor; p.End {
			break
		}
	}
	if seen != n || pages < n*size/pageBytes {
		t.Errorf("%d records in %d pages, want %d", seen, pages+1, n)
	}
}

// Event streams, however many are asked for, leave places for everybody else; whoever finds none is
// told when to come again, and finds one when others have gone.
func TestStreamsLeaveRoom(t *testing.T) { eachEngine(t, testStreamsLeaveRoom) }

func testStreamsLeaveRoom(t *testing.T) {
	defer func(f func(*recorder.Recorder) seats) { seatsFor = f }(seatsFor)
	seatsFor = func(*recorder.Recorder) seats { return newSeats(24) }
	g := start(t, nil)
	defer stop(t, g)
	s := serve(t, g)
	defer s.Close()
	var open []io.Closer
	answers := map[string]int{}
	for i := range 90 {
		path := []string{"events", "stream", "stream?from_seq=1"}[i%3]
		c := dial(t, s.addr.String())
		open = append(open, c)
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET /api/v1/%s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
		b := make([]byte, 4096)
		n, err := c.Read(b)
		if err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
		code, _, _ := strings.Cut(string(b[:n]), "\r\n")
		if answers[code]++; strings.Contains(code, "503") && !strings.Contains(string(b[:n]), "Retry-After: 5\r\n") {
			t.Errorf("%.300s", b[:n])
		}
	}
	if answers["HTTP/1.1 200 OK"] != 12 || answers["HTTP/1.1 503 Service Unavailable"] != 78 {
		t.Errorf("the streams were answered %v, want 12 good ones", answers)
	}
	client := &http.Client{Timeout: time.Minute}
	defer client.CloseIdleConnections()
	for _, path := range []string{"healthz", "metrics", "api/v1/status", "api/v1/records"} {
		if resp, err := client.Get(s.URL() + path); err != nil {
			t.Errorf("beside the streams: %v", err)
		} else if resp.Body.Close(); resp.StatusCode != 200 {
			t.Errorf("%s beside the streams: %d", path, resp.StatusCode)
		}
	}
	for _, c := range open {
		c.Close()
	}
	testenv.Until(t, 20*time.Second, "the places are free again",
		func() bool { return len(s.seats.streams)+len(s.seats.watches) == 0 })
}

// A client that takes nothing is cut, and its place is free.
func TestClientThatDoesNotReadIsCut(t *testing.T) { eachEngine(t, testClientThatDoesNotReadIsCut) }

func testClientThatDoesNotReadIsCut(t *testing.T) {
	defer func(d time.Duration) { writeTimeout = d }(writeTimeout)
	writeTimeout = 2 * time.Second
	a := newDevice(t)
	g := start(t, nil, a.large("a"))
	s := serve(t, g)
	c := a.connected(t)
	defer c.Close()
	const n = 2000 // 42 MB in JSON: no kernel buffer takes that
	write(t, c, lengths(n, 16_000))
	stored(t, g, "a", n)
	slow := dial(t, s.addr.String())
	defer slow.Close()
	fmt.Fprintf(slow, "GET /api/v1/stream?from_seq=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if _, err := io.ReadFull(slow, make([]byte, 1)); err != nil {
		t.Fatalf("the stream does not begin: %v", err)
	}
	testenv.Until(t, 20*time.Second, "the client is cut", func() bool { return len(s.seats.streams) == 0 })
	if err := s.Close(); err != nil { // before the time-out is what it was
		t.Error(err)
	}
	stop(t, g)
}

// Clients that connect and say nothing, or not all that they have to, keep nobody from an answer,
// however few places there are.
func TestSilentClientsMakeRoom(t *testing.T) {
	const head = "POST /api/v1/ack HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 20\r\n"
	for name, said := range map[string]string{
		"nothing": "", "a byte": "G", "half a head": head, "half a body": head + "\r\n{",
		"half a handshake": "\x16\x03\x01\x02\x00\x01",
	} {
		t.Run(name, func(t *testing.T) { eachEngine(t, func(t *testing.T) { testSilentClients(t, said) }) })
	}
}

func testSilentClients(t *testing.T, said string) {
	if engine == string(server.Std) {
		t.Skip("SKIPPED: engine std ends no connection before its time-out; the others do")
	}
	defer func(f func(*recorder.Recorder) seats) { seatsFor = f }(seatsFor)
	seatsFor = func(*recorder.Recorder) seats { return newSeats(minConns) }
	var edit func(*config.Config)
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	if strings.HasPrefix(said, "\x16") {
		cert, key, pool := certificate(t)
		edit = func(c *config.Config) { c.API.TLS = config.TLS{Cert: cert, Key: key} }
		client.Transport = &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool}}
	}
	g := start(t, edit, newDevice(t).source("a"))
	defer stop(t, g)
	s := serve(t, g)
	defer s.Close()
	for range 16 * minConns { // by their time-outs they would take 150 s, those of a body for ever
		c := dial(t, s.addr.String())
		defer c.Close()
		write(t, c, []byte(said))
	}
	began := time.Now()
	for _, path := range []string{"healthz", "api/v1/status"} {
		resp, err := client.Get(s.URL() + path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		resp.Body.Close()
	}
	if took := time.Since(began); took > headerTimeout {
		t.Errorf("the answers took %v", took)
	} else {
		t.Logf("the answers took %v", took)
	}
}

// The more clients wait for a place, the less those get that say nothing: all of them together take
// no more than a few seconds.
func TestSilenceIsShared(t *testing.T) {
	for _, places := range []int{minConns, 16, maxConns} {
		for _, all := range []int{0, 1, 64, 4096} {
			total := time.Duration(0)
			for waiting := all; waiting > 0; waiting -= places {
				total += silence(places, waiting)
			}
			if total > 3*time.Second || silence(places, all) > silentMost || silence(places, 1) != silentMost {
				t.Errorf("%d that wait for %d places: %v, of one alone %v", all, places, total, silence(places, 1))
			}
		}
	}
}
