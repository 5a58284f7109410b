package own

import (
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/server"
)

// serveHTTP serves at the parameter addr until it is killed. engine: net/http, which is that package alone, or an engine of package server;
// mode: goroutine, coroutine or inline; work: hello or json; yield: every handler yields to the scheduler so many times.
func serveHTTP(t *contestant.Turn) error {
	addr, err := t.Address()
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	work := helloWork
	if t.Text("work") == "json" {
		work = contestant.JSON
	}
	handler := ordinary(work, t.Int("yield", 0))
	if t.Text("engine") == "net/http" {
		return http.Serve(ln, handler)
	}
	cfg := server.Config{
		Engine: server.Engine(t.Text("engine")), Mode: server.Mode(t.Text("mode")), MaxConns: 60_000,
		SQPoll: t.Text("sqpoll") == "1", SQPollIdle: time.Duration(t.Int("sqpoll_idle_us", 2000)) * time.Microsecond,
	}
	if cfg.Mode == server.Inline {
		cfg.Lean = func(w *server.LeanResponse, _ *server.LeanRequest) {
			w.ContentType("text/plain")
			_, _ = w.Write(work()) // into memory
		}
	} else {
		cfg.Handler = handler
	}
	s, err := server.New(cfg)
	if err != nil {
		return err
	}
	if err := s.Serve(ln); err != nil {
		return fmt.Errorf("%s: %w", s.Choice().Engine, err)
	}
	return nil
}

var hello = []byte(contestant.Hello)

func helloWork() []byte { return hello }

// ordinary is the handler of all engines that take one of net/http.
func ordinary(work func() []byte, yields int) http.Handler {
	ctype := []string{"text/plain"}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range yields {
			runtime.Gosched()
		}
		b := work()
		h := w.Header()
		h["Content-Type"] = ctype
		h["Content-Length"] = []string{strconv.Itoa(len(b))}
		_, _ = w.Write(b) // an error is the client's leaving
	})
}
