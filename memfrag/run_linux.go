package memfrag

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// Bounds of a Config.
const (
	MinInterval = 100 * time.Millisecond
	MaxInterval = time.Hour
	MaxFor      = 365 * 24 * time.Hour
)

// Config says what is followed, and for how long.
type Config struct {
	Interval time.Duration // between samples, MinInterval to MaxInterval
	For      time.Duration // from the first sample of the log on, to MaxFor
	PID      int           // a process to be followed, too; 0: none
	Log      string        // file of the samples; it is gone on with if it is there
	NoTrial  bool          // ask for no huge pages

	// Watch is shown each sample, and may ask what all say together; nil: nobody is.
	Watch func(last Sample, all func() Summary)
}

// ErrConfig is in the error of a Config that makes no sense.
var ErrConfig = errors.New("memfrag: wrong configuration")

func (c Config) check() error {
	switch {
	case c.Interval < MinInterval || c.Interval > MaxInterval:
		return fmt.Errorf("%w: an interval of %v: want %v to %v", ErrConfig, c.Interval, MinInterval, MaxInterval)
	case c.For < c.Interval || c.For > MaxFor:
		return fmt.Errorf("%w: for %v: want the interval, %v, to %v", ErrConfig, c.For, c.Interval, MaxFor)
	case c.PID < 0:
		return fmt.Errorf("%w: process %d: want the number of one, or 0", ErrConfig, c.PID)
	case c.Log == "":
		return fmt.Errorf("%w: no Log: want the name of a file", ErrConfig)
	}
	return nil
}

// Result is what was found out, of all samples of the log.
type Result struct {
	Summary
	Over    bool              // Config.For has passed; else it was interrupted, or the process has ended
	Ended   bool              // the process has ended
	Missing map[string]string // what could not be looked at, and why
	Resumed int               // samples that the log had before
	CPU     float64           // CPU time of this process, as a share of one CPU
}

// Run takes samples until Config.For has passed since the first of the log, ctx ends, or the
// process does.
func Run(ctx context.Context, cfg Config) (Result, error) {
	if err := cfg.check(); err != nil {
		return Result{}, err
	}
	w := newWatcher(cfg.PID, !cfg.NoTrial)
	now := time.Now()
	h := header{
		Memfrag: version, Interval: cfg.Interval, Page: w.page, Huge: w.huge,
		PID: cfg.PID,
	}
	if cfg.PID != 0 {
		var err error
		if h.Born, err = born(w.root, cfg.PID); err != nil {
			return Result{}, err
		}
		w.born = h.Born
		boot, _ := fs.ReadFile(w.root, "proc/sys/kernel/random/boot_id")
		h.Boot = strings.TrimSpace(string(boot))
	}
	if _, err := w.look(now); err != nil { // before there is a log
		return Result{}, err
	}
	w.blocks = time.Time{}           // the log's first sample has them
	h.Began = time.Now().UnixMilli() // behind a look that may have taken long
	l, err := openLog(cfg.Log, h)
	if err != nil {
		return Result{}, err
	}
	r := Result{Resumed: len(l.all), Missing: w.missing}
	used := sys.CPUTime()
	err = follow(ctx, cfg, w, l, &r)
	r.CPU = float64(sys.CPUTime()-used) / float64(max(1, time.Since(now)))
	r.Summary = summarise(l.Began, l.all)
	return r, errors.Join(err, l.file.Close())
}

// follow takes the samples.
func follow(ctx context.Context, cfg Config, w *watcher, l *samples, r *Result) error {
	until := time.UnixMilli(l.Began).Add(cfg.For)
	tick := time.NewTicker(cfg.Interval)
	defer tick.Stop()
	for {
		now := time.Now()
		if !now.Before(until) {
			r.Over = true
			return nil
		}
		s, err := w.look(now)
		if errors.Is(err, errEnded) {
			r.Ended = true
			return nil
		}
		if err == nil {
			err = l.add(s)
		}
		if err != nil {
			return err
		}
		if cfg.Watch != nil {
			cfg.Watch(s, func() Summary { return summarise(l.Began, l.all) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Read reads the log of a run, which may be under way.
func Read(name string) (Summary, error) {
	f, err := os.Open(name)
	if err != nil {
		return Summary{}, err
	}
	defer f.Close()
	h, all, _, err := readLog(f)
	if err == nil && h == nil {
		err = errors.New("it is empty")
	}
	if err != nil {
		return Summary{}, fmt.Errorf("%s: %w", name, err)
	}
	return summarise(h.Began, all), nil
}
