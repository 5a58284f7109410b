package server_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/server"
)

// TestEndIdle: whoever has said nothing, or a part of a head, for too long loses its connection; a
// request that waits for its body goes on, and so does a head within its time.
func TestEndIdle(t *testing.T) {
	in(t, append(places(t, server.Goroutine, server.Coroutine), place{server.Epoll, server.Inline}),
		func(t *testing.T, p place) {
			if p.std() {
				return
			}
			s := open(t, p, say("hi"), func(c *server.Config) {
				c.ReadHeaderTimeout = suitePatience
				if p.Mode == server.Inline {
					c.Handler, c.Lean = nil, func(*server.LeanResponse, *server.LeanRequest) {}
				}
			})
			const silent = 50 * time.Millisecond
			body := s.dial(t)
			body.send("POST / HTTP/1.1\nHost: a\nConnection: close\nContent-Length: 2\n\nx")
			for name, text := range map[string]string{
				"nothing": "", "a byte": "G",
				"half a head": "GET / HTTP/1.1\nHost: a\n",
			} {
				c := s.dial(t)
				c.send(text)
				ended := make(chan error, 1)
				go func() {
					_, err := c.r.ReadByte()
					ended <- err
				}()
				eventually(func() bool {
					s.EndIdle(silent)
					return len(ended) > 0
				})
				if err := take(t, ended, "the end of "+name); err == nil {
					t.Errorf("%s: there is an answer", name)
				}
			}
			// one that was answered for the last time, and sends on
			sends := s.dial(t)
			sends.send("GET / HTTP/9\n\n")
			_, _ = io.ReadAll(sends.r)
			const over = 600 * time.Millisecond // more than it lasts where its client is silent
			begin := time.Now()
			for err := error(nil); err == nil; _, err = sends.Write([]byte("x")) {
				time.Sleep(silent)
				s.EndIdle(over)
			}
			if d := time.Since(begin); d < over || d > 20*time.Second { // without EndIdle it would be 30 s
				t.Errorf("a connection that is over lasts for %v", d)
			}
			late := s.dial(t)
			late.send("GET / HTTP/1.1\nHost: a\n")
			s.EndIdle(time.Hour)
			body.send("y")
			if r := body.reply(t, http.MethodPost); r.status() != http.StatusOK {
				t.Errorf("the request with half a body: %v", r)
			}
			late.send("\n")
			if r := late.reply(t, http.MethodGet); r.status() != http.StatusOK {
				t.Errorf("a head within its time: %v", r)
			}
		})
}
