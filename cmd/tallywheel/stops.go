package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// stops hears what tells this process to stop: SIGTERM, and Ctrl-C. A process has one.
type stops struct {
	heard      chan os.Signal
	quit, done chan struct{}
}

type stopsKey struct{}

// untilStopped is a context that ends when this process is told to stop, and knows its stops.
func untilStopped() (ctx context.Context, end func()) {
	s := &stops{heard: make(chan os.Signal, 1), quit: make(chan struct{}), done: make(chan struct{})}
	signal.Notify(s.heard, syscall.SIGINT, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), stopsKey{}, s))
	go func() {
		defer close(s.done)
		select {
		case <-s.heard:
			cancel()
		case <-s.quit:
		}
	}()
	return ctx, cancel
}

// unhear has the next signal end this process as it ends any program, and reports whether there was
// one before: each of them does the one or is the other. It may be called once.
func unhear(ctx context.Context) (stopped bool) {
	if s, ok := ctx.Value(stopsKey{}).(*stops); ok {
		signal.Stop(s.heard) // what was caught is in the channel then
		close(s.quit)
		<-s.done
		stopped = len(s.heard) > 0
	}
	return stopped || ctx.Err() != nil
}
