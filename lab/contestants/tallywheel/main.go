// Command tallywheel is our own reader as a contestant: it reads and decodes, CRC included, and keeps nothing.
//
//	tallywheel MODE PORT…
package main

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/reader"
	"github.com/tallywheel/tallywheel/serial"
)

// lane decodes one port and counts.
type lane struct {
	dec    tally128.Decoder
	frames *atomic.Uint64
	n      uint64
}

func (l *lane) Arrived(view []byte, _ int, _ int64) (int, bool) {
	done := l.dec.Decode(view, l)
	l.frames.Add(l.n)
	l.n = 0
	return done, true
}
func (l *lane) Silent([]byte, int64) int    { return 0 }
func (l *lane) Closed([]byte, int64, error) {}
func (l *lane) Frame(*frame.Frame)          { l.n++ }
func (l *lane) Damaged()                    {}
func (l *lane) Skip([]byte)                 {}

func main() {
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(mode string, paths []string) error {
	cfg := reader.Config{Mode: reader.Mode(mode), Tick: 5 * time.Millisecond}
	if mode == string(reader.Blocking) || mode == string(reader.Polling) {
		cfg = reader.Config{Strategy: reader.Strategy(mode)}
	}
	r, err := reader.New(cfg)
	if err != nil {
		return err
	}
	var frames atomic.Uint64
	for _, path := range paths {
		p, err := serial.Open(path, serial.Config{})
		if err != nil {
			return err
		}
		if _, err := r.Add(reader.Port{FD: p.FD(), Handler: &lane{frames: &frames}}); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	fmt.Println("frames", frames.Load())
	return nil
}
