package own

import (
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/server"
)

// serveHTTP serves at the parameter addr until it is killed.
func serveHTTP(t *contestant.Turn) error {
	addr, err := t.Address()
	if err != nil {
		return err
	}
	s, err := httpServer(t)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	if err := s.Serve(ln); err != nil {
		return fmt.Errorf("%s: %w", t.Text("engine"), err)
	}
	return nil
}

// anyServer is net/http's server or ours.
type anyServer interface {
	Serve(ln net.Listener) error
	Close() error
}

// httpServer makes a server of parameters. engine: net/http, which is that package alone, or an
// engine of package server; mode: goroutine, coroutine or inline; work: what a request asks for, as
// workOf has it.
func httpServer(t *contestant.Turn) (anyServer, error) {
	work, err := workOf(t)
	if err != nil {
		return nil, err
	}
	if t.Text("engine") == "net/http" {
		return &http.Server{Handler: work.handler}, nil
	}
	cfg := server.Config{
		Engine: server.Engine(t.Text("engine")), Mode: server.Mode(t.Text("mode")), MaxConns: 60_000,
		SQPoll: t.Text("sqpoll") == "1", SQPollIdle: time.Duration(t.Int("sqpoll_idle_us", 2000)) * time.Microsecond,
	}
	if cfg.Mode == server.Inline {
		cfg.Lean = work.lean
	} else {
		cfg.Handler = work.handler
	}
	return server.New(cfg)
}
