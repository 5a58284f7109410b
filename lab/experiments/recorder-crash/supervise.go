package recordercrash

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/lab/load"
)

const (
	stopWithin = 20 * time.Second // what a stop may take
	failsMost  = 3                // times that a program may end by itself with an error
)

// product is what records.
type product struct {
	record func(b []byte, n uint64) // what the device says to it: see load.Crashes
	// command writes what the program needs into its folder, and says how it is called.
	command func(t *contestant.Turn, folder string) (argv []string, err error)
	// kept reads what is stored in the folder, and how many bytes the product says are lost.
	kept func(folder string) (kept, error)
	// stores reports whether something is stored in the folder.
	stores func(folder string) bool
}

// kept is what is stored: how often each number is, and how many bytes the product itself says are
// lost.
type kept struct {
	times map[uint64]int
	named float64
}

// supervised has a product record until the turn ends, under a supervisor that starts it again at
// once, as systemd with Restart=always and RestartSec=0 does. Then it holds what is stored to what
// the device has said.
func supervised(p product) contestant.Work {
	return func(t *contestant.Turn) error {
		folder := t.Text("folder")
		argv, err := p.command(t, folder)
		if err != nil {
			return err
		}
		s, err := supervise(folder, argv)
		if err != nil {
			return err
		}
		if _, err := t.Ready(); err != nil {
			return errors.Join(err, s.end())
		}
		over := make(chan struct{})
		go func() { t.End(); close(over) }()
		if err := s.run(over); err != nil {
			return err
		}
		took := t.Elapsed()
		said, err := load.ReadSaid(folder)
		if err != nil {
			return err
		}
		k, err := p.kept(folder)
		if err != nil {
			return err
		}
		return t.Result(took, uint64(len(k.times)), k.judge(said, t.Int("rate", 0))...)
	}
}

// judge holds what is stored to what was said, at a rate in bytes a second.
func (k kept) judge(said load.Said, rate int) []contestant.Value {
	nobodyTook := map[uint64]bool{}
	for _, n := range said.Unsent {
		nobodyTook[n] = true
	}
	var lost, unsent, doubled, missing, run, longest float64
	for n := range said.Records {
		times, counts := k.times[n], n >= said.From
		switch {
		case times > 0:
			doubled += float64(times - 1)
			run = 0
			continue
		case counts && nobodyTook[n]:
			unsent++
		case counts:
			lost++
		}
		missing++
		run++
		longest = max(longest, run)
	}
	events := float64(max(1, said.Events))
	an := func(records float64) float64 { return records * load.RecordBytes / events }
	return []contestant.Value{
		{Metric: "events", V: float64(said.Events)},
		{Metric: "lost_bytes_per_event", V: an(lost)},
		{Metric: "unsent_bytes_per_event", V: an(unsent)},
		{Metric: "doubled_bytes_per_event", V: an(doubled)},
		{Metric: "unnamed_bytes_per_event", V: max(0, missing*load.RecordBytes-k.named) / events},
		{Metric: "longest_gap_ms", V: 1e3 * longest * load.RecordBytes / float64(max(1, rate))},
	}
}

// supervisor keeps a program running.
type supervisor struct {
	argv []string
	out  *os.File // what all its starts print
	errs *os.File
	cmd  *exec.Cmd
	done chan error // ends of programs
}

const (
	outFile  = "out"
	errsFile = "errors"
)

func supervise(folder string, argv []string) (*supervisor, error) {
	out, err := os.Create(filepath.Join(folder, outFile))
	if err != nil {
		return nil, err
	}
	errs, err := os.Create(filepath.Join(folder, errsFile))
	if err != nil {
		return nil, errors.Join(err, out.Close())
	}
	s := &supervisor{argv: argv, out: out, errs: errs, done: make(chan error, 1)}
	return s, s.start()
}

func (s *supervisor) start() error {
	c := exec.Command(s.argv[0], s.argv[1:]...)
	c.Stdout, c.Stderr = s.out, s.errs
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := sys.Start(c.Start); err != nil {
		return err
	}
	s.cmd = c
	go func() { s.done <- c.Wait() }()
	return nil
}

// run starts the program again whenever it has ended, until over; then it stops it.
func (s *supervisor) run(over <-chan struct{}) error {
	fails := 0
	for {
		select {
		case <-over:
			return s.end()
		case err := <-s.done:
			var ended *exec.ExitError
			if errors.As(err, &ended) && ended.ExitCode() > 0 {
				if fails++; fails == failsMost {
					return fmt.Errorf("%s: %w: %s", filepath.Base(s.argv[0]), err, s.lastWords())
				}
			}
			if err := s.start(); err != nil {
				return err
			}
		}
	}
}

// end stops the program in good order.
func (s *supervisor) end() error {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // an error: it has ended
	select {
	case <-s.done:
		return errors.Join(s.out.Close(), s.errs.Close())
	case <-time.After(stopWithin):
		_ = s.cmd.Process.Kill()
		return fmt.Errorf("%s does not stop within %v: %s", filepath.Base(s.argv[0]), stopWithin, s.lastWords())
	}
}

// lastWords is the last line that the program has said.
func (s *supervisor) lastWords() string {
	b, err := os.ReadFile(s.errs.Name())
	if err != nil {
		return err.Error()
	}
	b = bytes.TrimSpace(b)
	return string(b[bytes.LastIndexByte(b, '\n')+1:])
}
