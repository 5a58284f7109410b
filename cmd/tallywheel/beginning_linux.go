package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/tallywheel/tallywheel/api"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/recorder"
	"github.com/tallywheel/tallywheel/seglog"
)

// beginning is what a `run` begins to record with.
type beginning struct {
	cfg      config.Config
	link     *isolate.Link // to the keeper; nil: there is none
	listener net.Listener  // of the API; nil: it listens nowhere yet, and shall not if it is off
	held     bool          // … and the keeper has it already
	log      *slog.Logger
	quiet    bool   // the journal need not be told that this process begins, if nothing is wrong
	speak    func() // has the journal told of everything from now on
}

// begin reads the configuration. It does not return where this process becomes a keeper. In a
// process of a keeper it prepares all that can be while another one records.
func begin(ctx context.Context, file string, log *slog.Logger) (b beginning, err error) {
	b.log = log
	if isolate.Role(os.Getenv(isolate.RoleVariable)) != isolate.Recorder {
		if b.cfg, err = loading(ctx, file, writesWithin, config.Load); err == nil {
			err = notKept(b.cfg.Log.Dir)
		}
		if err == nil {
			err = becomeKeeper(ctx, b.cfg, log)
		}
		if err == nil {
			go refuseUpgrades(log)
		}
		return b, err
	}
	signal.Ignore(syscall.SIGUSR2) // it is the keeper's
	if b.link, err = isolate.Inherit(); err != nil {
		return b, err
	}
	if err = b.prepare(file); err == nil {
		err = b.link.Prepared()
	} else {
		_ = b.link.Refuse(err) // an error: the keeper has ended
	}
	return b, err
}

// refuseUpgrades tells whoever sends SIGUSR2 to a recorder without a keeper what to do.
func refuseUpgrades(log *slog.Logger) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR2)
	for range asked {
		log.Warn("SIGUSR2 upgrades a recorder with `isolate: process` alone: stop this one, and start it again")
	}
}

// prepare reads the configuration and binds the API, and finds out what else may be wrong.
func (b *beginning) prepare(file string) error {
	shelf, how, err := b.link.Prepare()
	if err != nil {
		return err
	}
	var start isolate.Start
	var last []byte // the configuration that was recorded with
	var listens isolate.Entry
	for _, e := range shelf {
		switch e.Name {
		case isolate.StartEntry:
			err = json.Unmarshal(e.Data, &start)
		case isolate.ConfigEntry:
			last, err = e.Text()
		case isolate.APIEntry:
			listens = e
		}
		if err != nil {
			return fmt.Errorf("%s on the shelf of the keeper: %w", e.Name, err)
		}
	}
	b.quiet = how.Quiet
	if b.cfg, err = b.load(file, how, last, start); err != nil {
		return err
	}
	return b.listen(listens)
}

// load reads the configuration from the file. Where no recorder can go on with that, and none is
// there, it is the one that was recorded with last.
func (b *beginning) load(file string, how isolate.Beginning, last []byte, start isolate.Start) (cfg config.Config,
	err error,
) {
	if !how.AsBefore && !how.Stops || last == nil {
		cfg, err = config.Reload(file) // the keeper has read what came through a pipe
		if err == nil && (how.Waits || last != nil) {
			err = recorder.CheckGoOn(cfg, start)
		}
		if err == nil || how.Waits || last == nil {
			return cfg, err
		}
		b.log.Error("the recorder cannot go on with what the configuration says now: it goes on with what that said before", "error", err)
	}
	cfg = config.Config{}
	return cfg, json.Unmarshal(last, &cfg)
}

// listen takes the socket of the API that the keeper has, if it listens where the configuration
// says, or makes one.
func (b *beginning) listen(e isolate.Entry) (err error) {
	var address string
	if len(e.FDs) > 0 {
		if err := json.Unmarshal(e.Data, &address); err != nil {
			return err
		}
	}
	switch {
	case b.cfg.API.Off():
		e.CloseFDs()
	case address == b.cfg.API.Listen:
		f, err := e.File()
		if err != nil {
			return err
		}
		b.listener, err = net.FileListener(f)
		b.held = true
		return errors.Join(err, f.Close())
	default:
		e.CloseFDs()
		b.listener, err = api.Listen(b.cfg.API)
	}
	return err
}

// ready tells the keeper that this process records, and gives it what the next one needs. An error
// would be that the keeper has ended, which Recorder.KeeperEnded says.
func (b *beginning) ready() {
	if b.link == nil {
		return
	}
	var err error
	switch {
	case b.cfg.API.Off():
		err = b.link.Drop(isolate.APIEntry)
	case !b.held:
		err = putListener(b.link, b.cfg.API.Listen, b.listener)
	}
	if dir, pathErr := filepath.Abs(b.cfg.Log.Dir); pathErr == nil {
		err = errors.Join(err, b.link.Put(isolate.DoorEntry, doorOf(dir)))
	}
	b.keep(b.cfg)
	if err = errors.Join(err, b.link.Ready()); err != nil {
		b.log.Warn("the keeper has not taken what it was told", "error", err)
	}
}

// keep gives the keeper the configuration that is recorded with.
func (b *beginning) keep(cfg config.Config) {
	if b.link == nil {
		return
	}
	text, err := json.Marshal(cfg)
	if err == nil {
		err = b.link.PutText(isolate.ConfigEntry, text)
	}
	if err != nil {
		b.log.Warn("the keeper does not keep the configuration", "error", err)
	}
}

func putListener(link *isolate.Link, address string, l net.Listener) error {
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		return err
	}
	var putErr error
	err = raw.Control(func(fd uintptr) { putErr = link.Put(isolate.APIEntry, address, int(fd)) })
	return errors.Join(err, putErr)
}

// doorOf is where the keeper of a log listens for upgrades.
func doorOf(dir string) string { return filepath.Join(dir, "keeper.socket") }

// notKept is an error while a keeper has the log. Its recorder has the lock, but for a moment where
// it was killed or is replaced: who took the log then would lose what waits in memory for it.
func notKept(dir string) error {
	if isKept(dir) {
		return fmt.Errorf("log %s: %w", dir, seglog.ErrLocked)
	}
	return nil
}

// isKept reports whether there is a keeper of a log.
func isKept(dir string) bool { return isolate.IsKept(doorOf(dir)) }
