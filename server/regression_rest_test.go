package server_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/server"
)

// TestAHandlerThatAnswersReadsOn: a handler that writes before it has read the body reads on where
// no other request can follow, as by net/http: the answer is the last of its connection, or the
// client waited for 100-continue.
func TestAHandlerThatAnswersReadsOn(t *testing.T) {
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/flush" {
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r.Body}, make([]byte, 1500))
	})
	eachWay(t, ways(t, ofHTTP), func(t *testing.T, w way) {
		r := serve(t, w, server.Config{Handler: echo})
		for _, head := range []string{
			"HTTP/1.1\r\nHost: a\r\nConnection: close",
			"HTTP/1.0\r\nHost: a",
			"HTTP/1.0\r\nHost: a\r\nConnection: keep-alive",
			"HTTP/1.1\r\nHost: a\r\nExpect: 100-continue",
		} {
			for _, path := range []string{"/", "/flush"} {
				for _, size := range []int{3000, 20_000, 100_000, 400_000} {
					name := fmt.Sprintf("%s %s %d", strings.ReplaceAll(head, "\r\n", " "), path, size)
					t.Run(name, func(t *testing.T) {
						c, body := newClient(t, r.addr), newStream(1).block[:size]
						fmt.Fprintf(c, "POST %s %s\r\nContent-Length: %d\r\n\r\n", path, head, size)
						sent := make(chan error, 1)
						go func() {
							_, err := c.Write(body)
							sent <- err
						}()
						got, err := c.answer("POST")
						if err != nil && err.Error() == "100 Continue" {
							got, err = c.answer("POST")
						}
						if err != nil || !bytes.Equal([]byte(got), body) {
							t.Errorf("%d bytes of %d, %v", len(got), size, err)
						}
						if err := take(t, sent, "the body's end"); err != nil {
							t.Error(err)
						}
					})
				}
			}
		}
	})
}

// TestAnAnswerDoesNotWaitForTheRest: a client that sends the rest of its last request's body when
// it has the answer gets the answer.
func TestAnAnswerDoesNotWaitForTheRest(t *testing.T) {
	eachWay(t, ways(t, ofHTTP), func(t *testing.T, w way) {
		r := serve(t, w, server.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat("x", 10_000)) // the head goes out before the end
		})})
		c := newClient(t, r.addr)
		fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1000\r\n\r\nsome")
		if got, err := c.answer("POST"); err != nil || len(got) != 10_000 {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	})
}

// TestAPanicLeavesEarlierAnswers: a handler that ends early while the body of its request is still
// on the way takes no earlier answer from a client that has not read it.
func TestAPanicLeavesEarlierAnswers(t *testing.T) {
	const earlier, size = 5, 1 << 20
	page := strings.Repeat("0123456789abcdef", size/16)
	for name, end := range map[string]func(){
		"abort": func() { panic(http.ErrAbortHandler) }, "exit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, ways(t, ofHTTP), func(t *testing.T, w way) {
				r := serve(t, w, server.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodPost {
						end()
					}
					_, _ = io.WriteString(w, page)
				})})
				c := newClient(t, r.addr)
				_ = c.SetReadBuffer(256 << 10)
				fmt.Fprint(c, strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", earlier))
				const pieces, piece = 14, 7000
				fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", pieces*piece)
				go func() {
					for range pieces { // longer than the server waits for a client that does not end its side
						_, _ = c.Write(make([]byte, piece))
						time.Sleep(100 * time.Millisecond)
					}
				}()
				for i := range earlier {
					if i == earlier-1 {
						time.Sleep(time.Second)
					}
					if got, err := c.answer("GET"); err != nil || got != page {
						t.Fatalf("answer %d: %d bytes, %v", i, len(got), err)
					}
				}
				ended(t, c.TCPConn)
			})
		})
	}
}
