package server

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"
)

// linesTo is a log whose lines come to a channel.
type linesTo chan string

func (c linesTo) Write(b []byte) (int, error) {
	c <- string(b)
	return len(b), nil
}

// A handler that waits on a loop's thread is told of while it waits, once each time.
func TestAHandlerThatWaitsIsToldOf(t *testing.T) {
	for _, way := range ways(t, Coroutine) {
		t.Run(way.String(), func(t *testing.T) {
			lines, release := make(linesTo, 16), make(chan bool)
			s, addr := start(t, Config{
				Engine: way.Engine, Mode: way.Mode, Loops: 1, Log: slog.New(slog.NewTextHandler(lines, nil)),
				Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/wait" {
						<-release
					}
				}),
			})
			c := client(t)
			get := func(path string) {
				r, err := c.Get("http://" + addr + path)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				r.Body.Close()
			}
			for n := range uint64(2) {
				get("/quick")
				if got := s.Stats().Stalls; got != n {
					t.Errorf("%d stalls are counted before the handler waits, want %d", got, n)
				}
				answered := make(chan bool)
				go func() { defer close(answered); get("/wait") }()
				select {
				case line := <-lines:
					if !strings.Contains(line, "holds up") {
						t.Errorf("the log says %q", line)
					}
				case <-time.After(patience):
					t.Error("the log says nothing")
				}
				if got := s.Stats().Stalls; got != n+1 {
					t.Errorf("%d stalls are counted, want %d", got, n+1)
				}
				release <- true
				<-answered
			}
			if len(lines) > 0 {
				t.Errorf("the log goes on: %q", <-lines)
			}
		})
	}
}
