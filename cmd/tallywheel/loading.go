package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tallywheel/tallywheel/config"
)

// writesWithin is how long a recorder that is stopped in its start still waits for a configuration
// that comes through a pipe.
const writesWithin = 5 * time.Second

// loading reads a configuration, which may come through a pipe, or from a disk that does not
// answer: not for longer than patience once ctx has ended.
func loading(ctx context.Context, file string, patience time.Duration, load func(string) (config.Config, error),
) (config.Config, error) {
	type loaded struct {
		cfg config.Config
		err error
	}
	done := make(chan loaded, 1)
	go func() {
		cfg, err := load(file)
		done <- loaded{cfg, err}
	}()
	select {
	case l := <-done:
		return l.cfg, l.err
	case <-ctx.Done():
	}
	select {
	case l := <-done:
		return l.cfg, l.err
	case <-time.After(patience):
		return config.Config{}, fmt.Errorf("%s: stopped while it was read: nobody writes into that pipe, or its disk does not answer", file)
	}
}
