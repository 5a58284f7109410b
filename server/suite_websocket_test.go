package server_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	coder "github.com/coder/websocket"
	gorilla "github.com/gorilla/websocket"

	"github.com/tallywheel/tallywheel/server"
)

// The two libraries that most programs take for WebSocket, each as server and as client. Whether a
// frame is right is theirs to judge: both refuse what RFC 6455 forbids.

// largeMessage is a message that no buffer holds whole.
const largeMessage = 64 << 20

// socketKind is what a client asks for by the path.
type socketKind struct {
	path     string
	compress bool
}

var socketKinds = []socketKind{{"/coder", false}, {"/coder", true}, {"/gorilla", false}, {"/gorilla", true}}

func (k socketKind) String() string { return fmt.Sprintf("%s compress=%v", k.path, k.compress) }

// echoSocket sends each message back, by the library that the path names.
func echoSocket(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/coder" {
		echoCoder(w, r)
		return
	}
	echoGorilla(w, r)
}

func echoCoder(w http.ResponseWriter, r *http.Request) {
	c, err := coder.Accept(w, r, &coder.AcceptOptions{CompressionMode: coder.CompressionContextTakeover})
	if err != nil {
		return
	}
	defer c.CloseNow()
	c.SetReadLimit(-1)
	for ctx := context.WithoutCancel(r.Context()); ; {
		kind, in, err := c.Reader(ctx)
		if err != nil {
			return
		}
		out, err := c.Writer(ctx, kind)
		if err != nil {
			return
		}
		if _, err := io.Copy(out, in); err != nil || out.Close() != nil {
			return
		}
	}
}

func echoGorilla(w http.ResponseWriter, r *http.Request) {
	up := gorilla.Upgrader{EnableCompression: true}
	c, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer c.Close()
	c.EnableWriteCompression(r.URL.Query().Get("compress") == "true")
	for {
		kind, in, err := c.NextReader()
		if err != nil {
			return
		}
		out, err := c.NextWriter(kind)
		if err != nil {
			return
		}
		if _, err := io.Copy(out, in); err != nil || out.Close() != nil {
			return
		}
	}
}

// sockets runs f on each engine in each mode, plain and by TLS, with a URL that begins with ws or
// wss.
func sockets(t *testing.T, f func(t *testing.T, base string, trust *tls.Config)) {
	everywhere(t, func(t *testing.T, p place) {
		t.Run("plain", func(t *testing.T) { f(t, "ws://"+open(t, p, echoSocket).addr, nil) })
		if p.Mode == server.Goroutine {
			t.Run("TLS", func(t *testing.T) {
				tune, trust := secured(t)
				f(t, "wss://"+open(t, p, echoSocket, tune).addr, trust)
			})
		}
	})
}

// dialGorilla connects by gorilla/websocket.
func dialGorilla(t testing.TB, base string, k socketKind, trust *tls.Config) *gorilla.Conn {
	t.Helper()
	d := gorilla.Dialer{
		TLSClientConfig: trust, EnableCompression: k.compress, HandshakeTimeout: suitePatience,
		WriteBufferSize: 1000,
	}
	c, resp, err := d.Dial(fmt.Sprintf("%s%s?compress=%v", base, k.path, k.compress), nil)
	if err != nil {
		t.Fatalf("%v: %v", k, err)
	}
	t.Cleanup(func() { c.Close() })
	if agreed := strings.Contains(resp.Header.Get("Sec-WebSocket-Extensions"),
		"permessage-deflate"); agreed != k.compress {
		t.Errorf("%v: compression is agreed on: %v", k, agreed)
	}
	_ = c.SetReadDeadline(time.Now().Add(5 * suitePatience))
	_ = c.SetWriteDeadline(time.Now().Add(5 * suitePatience))
	return c
}

// dialCoder connects by coder/websocket.
func dialCoder(t testing.TB, base string, k socketKind, trust *tls.Config) (*coder.Conn, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*suitePatience)
	t.Cleanup(cancel)
	tr := &http.Transport{TLSClientConfig: trust}
	t.Cleanup(tr.CloseIdleConnections)
	o := &coder.DialOptions{HTTPClient: &http.Client{Transport: tr}}
	if k.compress {
		o.CompressionMode = coder.CompressionContextTakeover
	}
	c, _, err := coder.Dial(ctx, fmt.Sprintf("%s%s?compress=%v", base, k.path, k.compress), o)
	if err != nil {
		t.Fatalf("%v: %v", k, err)
	}
	t.Cleanup(func() { c.CloseNow() })
	c.SetReadLimit(-1)
	return c, ctx
}

// message is text that a compressor shortens only in part.
func message(n int, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, seed))
	b := make([]byte, n)
	for i := range b {
		if i%64 < 32 {
			b[i] = byte('a' + rng.IntN(26))
		} else {
			b[i] = 'z'
		}
	}
	return b
}

// TestSuiteWebSocketFragments sends messages in frames of every size, with pings between them, and
// closes in the way that the RFC asks for.
func TestSuiteWebSocketFragments(t *testing.T) {
	sockets(t, func(t *testing.T, base string, trust *tls.Config) {
		for _, k := range socketKinds {
			gorillaFragments(t, base, k, trust)
			coderFragments(t, base, k, trust)
		}
	})
}

func gorillaFragments(t *testing.T, base string, k socketKind, trust *tls.Config) {
	c := dialGorilla(t, base, k, trust)
	pongs := 0
	c.SetPongHandler(func(string) error { pongs++; return nil })
	for i, size := range []int{0, 1, 125, 126, 65535, 65536, 200_000} {
		want := message(size, uint64(i))
		out, err := c.NextWriter(gorilla.TextMessage)
		if err != nil {
			t.Fatal(err)
		}
		for rest := want; len(rest) > 0; { // each Write beyond the buffer ends a frame
			n := min(len(rest), 1+len(want)/7)
			if _, err := out.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
			if err := c.WriteControl(gorilla.PingMessage, []byte("between"),
				time.Now().Add(suitePatience)); err != nil {
				t.Fatal(err)
			}
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		if kind, got, err := c.ReadMessage(); err != nil || kind != gorilla.TextMessage || !bytes.Equal(got, want) {
			t.Fatalf("gorilla to %v: %d bytes of kind %d come back of %d, %v", k, len(got), kind, len(want), err)
		}
	}
	if pongs == 0 {
		t.Errorf("gorilla to %v: no ping is answered", k)
	}
	farewell := gorilla.FormatCloseMessage(4321, "farewell")
	if err := c.WriteControl(gorilla.CloseMessage, farewell, time.Now().Add(suitePatience)); err != nil {
		t.Error(err)
	}
	if _, _, err := c.ReadMessage(); !gorilla.IsCloseError(err, 4321) {
		t.Errorf("gorilla to %v: the close handshake gives %v", k, err)
	}
	if _, err := c.NetConn().Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("gorilla to %v: after the close handshake Read gives %v, want EOF", k, err)
	}
}

func coderFragments(t *testing.T, base string, k socketKind, trust *tls.Config) {
	c, ctx := dialCoder(t, base, k, trust)
	for i, size := range []int{1, 125, 126, 65535, 65536, 200_000} {
		want := message(size, uint64(i))
		out, err := c.Writer(ctx, coder.MessageBinary)
		if err != nil {
			t.Fatal(err)
		}
		for rest := want; len(rest) > 0; { // each Write is a frame
			n := min(len(rest), 1+len(want)/7)
			if _, err := out.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		if _, got, err := c.Read(ctx); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("coder to %v: %d bytes come back of %d, %v", k, len(got), len(want), err)
		}
	}
	if err := c.Close(4321, "farewell"); err != nil {
		t.Errorf("coder to %v: the close handshake gives %v", k, err)
	}
}

// TestSuiteWebSocketLarge sends one message of 64 MB each way.
func TestSuiteWebSocketLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: 64 MB for each engine and mode take long; run without -short")
	}
	want := bytes.Repeat(message(1<<20, 1), largeMessage>>20)
	sum := sha256.Sum256(want)
	sockets(t, func(t *testing.T, base string, trust *tls.Config) {
		c := dialGorilla(t, base, socketKind{"/gorilla", false}, trust)
		sent := make(chan error, 1)
		go func() { sent <- c.WriteMessage(gorilla.BinaryMessage, want) }()
		h := sha256.New()
		_, in, err := c.NextReader()
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(h, in)
		if err != nil || n != largeMessage || !bytes.Equal(h.Sum(nil), sum[:]) {
			t.Errorf("%d bytes come back, %v; they are the same: %v", n, err, bytes.Equal(h.Sum(nil), sum[:]))
		}
		if err := take(t, sent, "the message to be sent"); err != nil {
			t.Error(err)
		}
	})
}

// TestSuiteWebSocketMany holds many sockets open at a time, all of them in use.
func TestSuiteWebSocketMany(t *testing.T) {
	const clients, rounds = 40, 10
	sockets(t, func(t *testing.T, base string, trust *tls.Config) {
		var all sync.WaitGroup
		var open []*gorilla.Conn
		for i := range clients {
			open = append(open, dialGorilla(t, base, socketKinds[i%len(socketKinds)], trust))
		}
		for i, c := range open {
			all.Go(func() {
				for n := range rounds {
					want := message(n*500+i, uint64(i*rounds+n))
					if err := c.WriteMessage(gorilla.TextMessage, want); err != nil {
						t.Errorf("client %d: %v", i, err)
						return
					}
					if _, got, err := c.ReadMessage(); err != nil || !bytes.Equal(got, want) {
						t.Errorf("client %d: %d bytes come back of %d, %v", i, len(got), len(want), err)
						return
					}
				}
			})
		}
		all.Wait()
	})
}
