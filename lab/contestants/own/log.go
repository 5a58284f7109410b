package own

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/seglog"
)

// openLog makes a log in a new folder below the parameter dir. engine: std, uring, or linked: uring
// with an operation for each record.
func openLog(t *contestant.Turn, sync seglog.SyncPolicy) (log *seglog.Log, dir string, err error) {
	if dir, err = os.MkdirTemp(t.Text("dir"), "log-"); err != nil {
		return nil, "", err
	}
	backend := asyncfile.Uring
	if t.Text("engine") == "std" {
		backend = asyncfile.Std
	}
	fs, err := seglog.DirWith(dir, func(path string, create bool) (seglog.File, error) {
		return asyncfile.Open(path, asyncfile.Config{Backend: backend, Write: true, Create: create})
	})
	if err != nil {
		return nil, dir, err
	}
	log, err = seglog.Open(seglog.Config{FS: fs, Sync: sync, Chain: t.Text("engine") == "linked", MinFree: -1})
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

// durable appends records that are acknowledged after their fdatasync.
func durable(t *contestant.Turn) error { return appendTo(t, seglog.SyncAlways) }

// appendOnly appends records that the kernel writes back when it likes.
func appendOnly(t *contestant.Turn) error { return appendTo(t, seglog.SyncNever) }

func appendTo(t *contestant.Turn, sync seglog.SyncPolicy) error {
	log, dir, err := openLog(t, sync)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	err = contestant.Appenders(t, func(record []byte) error {
		_, err := log.Append(0, 1, record)
		return err
	})
	return errors.Join(err, log.Close(), os.RemoveAll(dir))
}
