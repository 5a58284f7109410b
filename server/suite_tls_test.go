package server_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/server"
)

// secured gives a certificate for a server and what a client needs to trust it.
func secured(t testing.TB) (func(*server.Config), *tls.Config) {
	h := httptest.NewUnstartedServer(nil)
	h.StartTLS()
	t.Cleanup(h.Close)
	pool := x509.NewCertPool()
	pool.AddCert(h.Certificate())
	return func(c *server.Config) { c.TLS = &tls.Config{Certificates: h.TLS.Certificates} }, &tls.Config{
		RootCAs:    pool,
		ServerName: "example.com",
	}
}

// overTLS runs f on each engine; TLS has one mode.
func overTLS(t *testing.T, f func(t *testing.T, p place)) { onGoroutines(t, f) }

// TestSuitePlainToTLS speaks plain HTTP to a port of TLS: the answer says what is wrong.
func TestSuitePlainToTLS(t *testing.T) {
	overTLS(t, func(t *testing.T, p place) {
		tune, _ := secured(t)
		s := open(t, p, say("ok"), tune)
		for _, send := range []string{
			"GET / HTTP/1.1\nHost: a\n\n", "POST / HTTP/1.1\nHost: a\nContent-Length: 0\n\n",
			"HEAD / HTTP/1.0\n\n", "OPTIONS * HTTP/1.1\nHost: a\n\n",
		} {
			c := s.dial(t)
			c.send(send)
			if got := c.rest(t); !strings.HasPrefix(got, "HTTP/1.0 400 Bad Request\r\n") ||
				!strings.Contains(got, "HTTP request to an HTTPS server") {
				t.Errorf("%.10q: the answer is %q", send, got)
			}
		}
		c := s.dial(t)
		_, _ = c.Write(bytes.Repeat([]byte("\x00\x01"), 100))
		if got := c.rest(t); strings.HasPrefix(got, "HTTP") {
			t.Errorf("the answer to garbage is %q", got)
		}
	})
}

// TestSuiteTLSState hands the state of TLS over with each request, by both versions of HTTP.
func TestSuiteTLSState(t *testing.T) {
	overTLS(t, func(t *testing.T, p place) {
		tune, trust := secured(t)
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			if r.TLS == nil {
				t.Error("there is no state of TLS")
				return
			}
			fmt.Fprintf(w, "%s %v %s %s %v", r.Proto, r.TLS.HandshakeComplete, r.TLS.ServerName,
				r.TLS.NegotiatedProtocol, r.TLS.Version >= tls.VersionTLS12)
		}, tune)
		for _, two := range []bool{false, true} {
			tr := &http.Transport{TLSClientConfig: trust.Clone(), ForceAttemptHTTP2: two}
			if !two {
				tr.TLSClientConfig.NextProtos = []string{"http/1.1"}
			}
			c := &http.Client{Transport: tr, Timeout: suitePatience}
			for range 2 {
				r, err := c.Get("https://" + s.addr)
				want := "HTTP/1.1 true example.com http/1.1 true"
				if two {
					want = "HTTP/2.0 true example.com h2 true"
				}
				if got := text(t, r, err); got != want {
					t.Errorf("the answer is %q, want %q", got, want)
				}
			}
			tr.CloseIdleConnections()
		}
	})
}

// TestSuiteNextProtos negotiates what the configuration allows.
func TestSuiteNextProtos(t *testing.T) {
	overTLS(t, func(t *testing.T, p place) {
		for _, c := range []struct {
			server, client []string
			want           string
		}{
			{nil, []string{"h2", "http/1.1"}, "h2"},
			{nil, []string{"http/1.1"}, "http/1.1"},
			{nil, nil, ""},
			{[]string{"h2", "http/1.1"}, []string{"h2"}, "h2"},
			{[]string{"http/1.1"}, []string{"h2", "http/1.1"}, "http/1.1"},
		} {
			tune, trust := secured(t)
			s := open(t, p, say("ok"), tune, func(cfg *server.Config) { cfg.TLS.NextProtos = c.server })
			trust.NextProtos = c.client
			conn, err := tls.Dial("tcp", s.addr, trust)
			if err != nil {
				t.Errorf("%v with %v: %v", c.server, c.client, err)
				continue
			}
			if got := conn.ConnectionState().NegotiatedProtocol; got != c.want {
				t.Errorf("%v with %v: negotiated %q, want %q", c.server, c.client, got, c.want)
			}
			if c.want != "h2" {
				_ = conn.SetDeadline(time.Now().Add(suitePatience))
				fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
				if b, err := io.ReadAll(conn); err != nil || !strings.HasSuffix(string(b), "ok") {
					t.Errorf("the answer is %q, %v", b, err)
				}
			}
			conn.Close()
		}
	})
}

// TestSuiteTLSBodies sends bodies both ways, in chunks and pipelined, and takes connections over.
func TestSuiteTLSBodies(t *testing.T) {
	overTLS(t, func(t *testing.T, p place) {
		tune, trust := secured(t)
		s := open(t, p, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") != "" {
				c, rw := hijackHandler(t, w)
				defer c.Close()
				line, _ := rw.ReadString('\n')
				fmt.Fprint(c, line)
				return
			}
			b, err := io.ReadAll(r.Body)
			if err != nil {
				t.Errorf("after %d bytes: %v", len(b), err)
			}
			_, _ = w.Write(b)
		}, tune)
		tr := &http.Transport{TLSClientConfig: trust}
		defer tr.CloseIdleConnections()
		c := &http.Client{Transport: tr, Timeout: suitePatience}
		for _, size := range []int{0, 1, 5000, 200_000} {
			r, err := c.Post("https://"+s.addr, "", io.LimitReader(bytes.NewReader(make([]byte, size)), int64(size)))
			if got := text(t, r, err); len(got) != size {
				t.Errorf("%d bytes came back of %d", len(got), size)
			}
		}
		conn, err := tls.Dial("tcp", s.addr, trust)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(suitePatience))
		fmt.Fprint(conn, strings.Repeat("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody", 3)+
			"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nhello\n")
		br := bufio.NewReader(conn)
		for range 3 {
			if r, err := readReply(br, "POST"); err != nil || r.body != "body" {
				t.Errorf("a pipelined answer is %v, %v", r, err)
			}
		}
		if b, err := io.ReadAll(br); string(b) != "hello\n" || err != nil {
			t.Errorf("the connection that was taken over said %q, %v", b, err)
		}
	})
}

// TestSuiteTLSHandshakeTimeout does not wait for ever for a client that says nothing.
func TestSuiteTLSHandshakeTimeout(t *testing.T) {
	overTLS(t, func(t *testing.T, p place) {
		tune, _ := secured(t)
		s := open(t, p, say("ok"), tune,
			func(c *server.Config) { c.ReadTimeout, c.IdleTimeout = 50*time.Millisecond, time.Hour })
		for _, send := range []string{"", "\x16\x03\x01"} {
			c := s.dial(t)
			c.send(send)
			c.rest(t)
		}
	})
}

// TestSuiteTLSHandshakeLogged tells of a handshake that failed.
func TestSuiteTLSHandshakeLogged(t *testing.T) {
	overTLS(t, func(t *testing.T, p place) {
		tune, _ := secured(t)
		s := open(t, p, say("ok"), tune)
		c := s.dial(t)
		_, _ = c.Write([]byte("\x16\x03\x01\x00\x05hello"))
		c.rest(t)
		s.log.await(t, "TLS handshake")
	})
}
