package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/trace"
	"sync"
	"time"
)

// tracing is a trace of Go's runtime that begins with a command.
type tracing struct {
	length time.Duration // 0: none
	out    string
}

// start starts it; it ends when its time is over, or by stop, which says where it is.
func (t tracing) start(talk io.Writer) (stop func() error, err error) {
	if t.length == 0 {
		return func() error { return nil }, nil
	}
	f, err := os.OpenFile(t.out, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--trace-out: %w", err)
	}
	if err := trace.Start(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	end := sync.OnceValue(func() error {
		trace.Stop()
		fmt.Fprintf(talk, "the trace is %s; tallywheel lab trace %[1]s draws it\n", t.out)
		return f.Close()
	})
	timer := time.AfterFunc(t.length, func() { _ = end() }) // stop returns its error again
	return func() error {
		timer.Stop()
		return end()
	}, nil
}
