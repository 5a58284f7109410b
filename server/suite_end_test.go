package server_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/server"
)

// TestSuiteEndWithUnreadBytes: the answer to a request that ends its connection goes out with the
// end. A client that has sent more than its request, which the server leaves unread, gets it all
// the same: closed over such bytes, a socket forgets what it holds back.
func TestSuiteEndWithUnreadBytes(t *testing.T) {
	const size = 3000 // a part of a segment, and more than is held for a short body
	body := strings.Repeat("e", size)
	check := func(t *testing.T, s *site, asked chan string, more chan struct{}) {
		for i := range 20 {
			w := s.dial(t)
			path := fmt.Sprint("/", i)
			w.send("GET " + path + " HTTP/1.1\nHost: a\nConnection: close\n\n")
			if got := take(t, asked, "the handler"); got != path {
				t.Fatalf("the handler got %s, want %s", got, path)
			}
			w.send("\n")
			more <- struct{}{}
			if r := w.reply(t, "GET"); r.body != body {
				t.Fatalf("answer %d has %d bytes, want %d", i, len(r.body), size)
			}
			w.rest(t)
		}
	}
	t.Run("handlers", func(t *testing.T) {
		everywhere(t, func(t *testing.T, p place) {
			asked, more := make(chan string), make(chan struct{})
			check(t, open(t, p, func(w http.ResponseWriter, r *http.Request) {
				asked <- r.URL.Path
				<-more
				_, _ = io.WriteString(w, body)
			}), asked, more)
		})
	})
	t.Run("lean", func(t *testing.T) {
		everyLean(t, func(t *testing.T, p place) {
			asked, more := make(chan string), make(chan struct{})
			check(t, openLean(t, p, func(w *server.LeanResponse, r *server.LeanRequest) {
				asked <- string(r.Path())
				<-more
				_, _ = io.WriteString(w, body)
			}), asked, more)
		})
	})
}
