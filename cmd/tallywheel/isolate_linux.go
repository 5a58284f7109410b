package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/recorder"
)

// With `isolate: process` the process that was called becomes the keeper, by executing the program
// anew: it keeps its number, for a supervisor's sake, and has none of the memory that reading the
// configuration took. It starts reader and recorder with the same arguments.

// role does what a process of a keeper does, or the keeper itself. ok is false in any other
// process, and in the recorder, which goes on as any other `run` does.
func role() (code int, ok bool) {
	switch isolate.Role(os.Getenv(isolate.RoleVariable)) {
	case isolate.Keeper:
		return keep(), true
	case isolate.Reader:
		// the keeper says when it is over
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR2)
		link, err := isolate.Inherit()
		if err == nil {
			err = isolate.ReadPorts(link, newLogger(os.Stderr).With("process", isolate.Reader))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "tallywheel: reader:", err)
			return exitFailed, true
		}
		return exitGood, true
	}
	return 0, false
}

// keep is the keeper.
func keep() int {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR2)
	debug.SetGCPercent(20) // it has next to nothing, and shall keep it so
	log := newLogger(os.Stderr).With("process", isolate.Keeper)
	next, err := programPath()
	if err != nil {
		log.Warn("where this program lies is not known: no upgrade will find it", "error", err)
	}
	return isolate.Keeping{
		Program: "/proc/self/exe", Next: next, Args: os.Args[1:], Log: log, Notify: notify,
	}.Run(signals)
}

// programPath is where an upgrade looks for the program: as it was called, for that may be a link
// which will lead to another.
func programPath() (string, error) {
	own, err := os.Executable()
	if err != nil {
		return "", err
	}
	called, err := exec.LookPath(os.Args[0])
	if err != nil {
		return own, nil
	}
	if called, err = filepath.Abs(called); err != nil {
		return own, nil
	}
	a, errA := os.Stat(own)
	b, errB := os.Stat(called)
	if errA != nil || errB != nil || !os.SameFile(a, b) {
		return own, nil
	}
	return called, nil
}

// errStopped ends a start that was told to stop before it had begun anything.
var errStopped = errors.New("stopped on request")

// becomeKeeper does not return, but for an error, where the configuration asks for processes of
// their own, and this machine has what that needs. Else it says why this process does all.
func becomeKeeper(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	var err error
	if cfg.Isolated() {
		err = mayIsolate(cfg)
	}
	isolate.CheckStore(func(s isolate.Start) error { return errors.Join(err, recorder.CheckGoOn(cfg, s)) }, log)
	if !cfg.Isolated() {
		return nil
	}
	if err != nil {
		log.Warn("isolate: process is not to be had here: one process reads and records, and a crash of it loses what it had in its hands", "error", err)
		return nil
	}
	program, err := os.Executable()
	if err == nil {
		signal.Ignore(syscall.SIGHUP, syscall.SIGUSR2) // in between; the keeper hears the next
		if unhear(ctx) {                               // the program that comes would not know of it
			return errStopped
		}
		err = sys.Exec(program, os.Args, append(os.Environ(), isolate.RoleVariable+"="+string(isolate.Keeper)))
	}
	return fmt.Errorf("the keeper of isolate: process cannot be started: %w", err)
}

// keeperTakes is how many descriptors a keeper takes, with all peers. Go has raised the limit of
// this process to the hard one.
func keeperTakes(cfg config.Config) (n int) {
	n = keeperNeeds
	for _, s := range cfg.Sources {
		each := 4 // its memory, its listener, its device, and a connection that waits
		if s.Overflow == config.OverflowSpill {
			each += 2 // the memory before that, and the file
		}
		if n += each; s.TCP.All() {
			n += each * s.TCP.MaxPeers
		}
	}
	return n
}

// keeperNeeds is how many descriptors a keeper has beside those of ports.
const keeperNeeds = 64

// mayIsolate tries what the three processes need of the kernel.
func mayIsolate(cfg config.Config) error {
	s, err := spool.Create(spool.Config{})
	if err != nil {
		return fmt.Errorf("memory that processes share: %w", err)
	}
	err = s.Close()
	pidfd, pidErr := sys.OpenProcess(os.Getpid())
	if pidErr != nil {
		return fmt.Errorf("a descriptor of a process, which Linux 5.3 has: %w", pidErr)
	}
	err = errors.Join(err, sys.CloseFD(pidfd))
	limit, limitErr := sys.LimitOf(sys.LimitFiles)
	if n := uint64(keeperTakes(cfg)); limitErr == nil && limit.Soft < n {
		return fmt.Errorf("%d descriptors, and it needs %d: raise the limit (ulimit -n, LimitNOFILE=)", limit.Soft, n)
	}
	return errors.Join(err, limitErr)
}
