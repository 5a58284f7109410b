package main

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections are in memory.
type pipes struct {
	waiting chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.waiting:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial() net.Conn {
	here, there := net.Pipe()
	p.waiting <- there
	return here
}

// TestDeskLosesNoRequest: a desk that closes answers who has connected, whether the head of the
// request comes before or behind that or in two halves, and soon cuts who says nothing.
func TestDeskLosesNoRequest(t *testing.T) {
	const head = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	for name, half := range map[string]int{"whole": len(head), "half": len(head) / 2, "later": 0, "silent": -1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ln := &pipes{waiting: make(chan net.Conn), closed: make(chan struct{})}
				ask := make(chan struct{})
				d := openDesk(ln, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					<-ask
					_, _ = io.WriteString(w, "done")
				}))
				c := ln.dial()
				defer c.Close()
				if _, err := io.WriteString(c, head[:max(half, 0)]); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				began, closed := time.Now(), make(chan time.Time, 1)
				go func() {
					d.close()
					closed <- time.Now()
				}()
				synctest.Wait()
				time.Sleep(firstWord / 2)
				if half == 0 {
					if _, err := io.WriteString(c, head[:1]); err != nil {
						t.Fatal(err)
					}
					half = 1
				}
				time.Sleep(lastAnswers/2 - firstWord/2)
				close(ask)
				if half < 0 {
					if at := <-closed; at.Sub(began) != firstWord {
						t.Errorf("who says nothing is waited for %v, want %v", at.Sub(began), firstWord)
					}
					if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
						t.Errorf("who says nothing reads: %v", err)
					}
					return
				}
				if _, err := io.WriteString(c, head[half:]); err != nil {
					t.Fatal(err)
				}
				answer, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil {
					t.Fatal(err)
				}
				if b, err := io.ReadAll(answer.Body); err != nil || string(b) != "done" || !answer.Close {
					t.Errorf("%q, %v; the connection stays: %t", b, err, !answer.Close)
				}
				if at := <-closed; at.Sub(began) != lastAnswers/2 {
					t.Errorf("closed after %v, want %v", at.Sub(began), lastAnswers/2)
				}
			})
		})
	}
}
