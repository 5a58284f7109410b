// Package logs is our log as a contestant, by the ways in which it writes.
package logs

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/seglog"
)

// Engine is how a log writes.
type Engine struct {
	backend asyncfile.Backend
	chain   bool
}

// The engines.
var (
	Std    = Engine{backend: asyncfile.Std}
	Uring  = Engine{backend: asyncfile.Uring}
	Linked = Engine{backend: asyncfile.Uring, chain: true} // an operation for each record
)

// open makes a log in a new folder below the parameter dir.
func (e Engine) open(t *contestant.Turn, sync seglog.SyncPolicy) (log *seglog.Log, dir string, err error) {
	if dir, err = os.MkdirTemp(t.Text("dir"), "log-"); err != nil {
		return nil, "", err
	}
	fs, err := seglog.DirWith(dir, func(path string, create bool) (seglog.File, error) {
		return asyncfile.Open(path, asyncfile.Config{Backend: e.backend, Write: true, Create: create})
	})
	if err != nil {
		return nil, dir, err
	}
	log, err = seglog.Open(seglog.Config{FS: fs, Sync: sync, Chain: e.chain, MinFree: -1})
	if err != nil {
		return nil, dir, err
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if spare, _ := filepath.Glob(filepath.Join(dir, "*.spare")); len(spare) > 0 { // a start is not what is measured
			break
		}
	}
	return log, dir, nil
}

// Durable appends records that are acknowledged after their fdatasync.
func (e Engine) Durable(t *contestant.Turn) error { return e.appendTo(t, seglog.SyncAlways) }

// Append appends records that the kernel writes back when it likes.
func (e Engine) Append(t *contestant.Turn) error { return e.appendTo(t, seglog.SyncNever) }

func (e Engine) appendTo(t *contestant.Turn, sync seglog.SyncPolicy) error {
	log, dir, err := e.open(t, sync)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	err = contestant.Appenders(t, func(record []byte) error {
		_, err := log.Append(0, 1, record)
		return err
	})
	return errors.Join(err, log.Close(), os.RemoveAll(dir))
}
