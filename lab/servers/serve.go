package servers

import (
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/server"
)

// Kind is one of our servers. The zero value is net/http's.
type Kind struct {
	Engine server.Engine
	Mode   server.Mode   // [server.Inline] runs lean handlers, the others net/http's
	SQPoll time.Duration // after so long without work its polling thread sleeps; 0: it has none
}

// Serves is the contestant that serves at the parameter addr until it is killed.
func (k Kind) Serves(w Work) contestant.Work {
	return func(t *contestant.Turn) error {
		addr, err := t.Address()
		if err != nil {
			return err
		}
		s, err := k.New(t, w)
		if err != nil {
			return err
		}
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		if err := s.Serve(ln); err != nil {
			return fmt.Errorf("%s: %w", k.Engine, err)
		}
		return nil
	}
}

// Server is net/http's server or ours.
type Server interface {
	Serve(ln net.Listener) error
	Close() error
}

// New makes the server of a turn.
func (k Kind) New(t *contestant.Turn, w Work) (Server, error) {
	task := w.task(t)
	if k.Engine == "" {
		return &http.Server{Handler: task.handler}, nil
	}
	cfg := server.Config{Engine: k.Engine, Mode: k.Mode, MaxConns: 60_000, SQPoll: k.SQPoll > 0, SQPollIdle: k.SQPoll}
	if cfg.Mode == server.Inline {
		cfg.Lean = task.lean
	} else {
		cfg.Handler = task.handler
	}
	return server.New(cfg)
}
