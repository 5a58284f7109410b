package server

import (
	"crypto/tls"
	"net"
	"net/http"
	"testing"
)

// TestCloseBetweenTheStarts: Close may come before, between and after the starts of HTTP/2 and of
// the loops. Nobody is left to serve: TestMain looks for goroutines.
func TestCloseBetweenTheStarts(t *testing.T) {
	for steps := range 3 {
		s, err := New(Config{Handler: http.HandlerFunc(hello), TLS: &tls.Config{}, Engine: Epoll})
		if err != nil {
			t.Fatal(err)
		}
		starts := []func(){func() { s.startH2(&net.TCPAddr{}) }, func() { _ = s.startLoops() }}
		for _, start := range starts[:steps] {
			start()
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for _, start := range starts[steps:] {
			start()
		}
		if steps == 0 && s.h2 != nil {
			_ = s.std.Close()
			t.Error("HTTP/2 is served after Close")
		}
	}
}
