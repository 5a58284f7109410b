package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"runtime/trace"
	"strings"
	"sync"
	"time"
)

// tracing is a trace of Go's runtime that begins with a command, and a profile of its CPU time
// beside it: the trace tells when goroutines ran, the profile what they did.
type tracing struct {
	length time.Duration // 0: none
	out    string
}

// profileOf is the name of the profile beside a trace: tallywheel.pprof beside tallywheel.trace.
func profileOf(trace string) string { return strings.TrimSuffix(trace, ".trace") + ".pprof" }

// start starts both; they end when their time is over, or by stop, which says where they are. Where
// one cannot begin, neither does.
func (t tracing) start(talk io.Writer) (stop func() error, err error) {
	if t.length == 0 {
		return func() error { return nil }, nil
	}
	var files []*os.File
	fail := func(err error) (func() error, error) {
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
		return nil, err
	}
	for _, path := range []string{t.out, profileOf(t.out)} {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err != nil {
			return fail(fmt.Errorf("--trace-out: %w", err))
		}
		files = append(files, f)
	}
	if err := pprof.StartCPUProfile(files[1]); err != nil {
		return fail(err)
	}
	if err := trace.Start(files[0]); err != nil {
		pprof.StopCPUProfile()
		return fail(err)
	}
	end := sync.OnceValue(func() error {
		trace.Stop()
		pprof.StopCPUProfile()
		fmt.Fprintf(talk, "the trace is %s; tallywheel lab trace %[1]s draws it\n", t.out)
		fmt.Fprintf(talk, "its CPU profile is %s; go tool pprof %[1]s shows it\n", profileOf(t.out))
		return errors.Join(files[0].Close(), files[1].Close())
	})
	timer := time.AfterFunc(t.length, func() { _ = end() }) // stop returns its error again
	return func() error {
		timer.Stop()
		return end()
	}, nil
}
