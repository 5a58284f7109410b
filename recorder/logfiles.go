package recorder

import (
	"errors"
	"fmt"
	"log/slog"
	"syscall"

	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/reader"
	"github.com/tallywheel/tallywheel/seglog"
)

// How the recorder reaches what is outside of it. Tests put others in their place: a disk that
// fails, devices that no kernel has, a clock of their own.
var (
	openFiles  = logFiles // the log's directory
	openReader = reader.New
	openSource = newOpener
	uptime     = sys.Uptime // since the machine started, by a clock that nobody sets
	writeSheet = inPlace    // a sheet, or a line of the history, into a folder
)

// advised is the error of a start, with what to do where the disk is what fails.
func advised(err error) error {
	if errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ESTALE) {
		return fmt.Errorf("%w: the disk fails, as `dmesg` says: start again once it answers, or copy what it still gives to another one, and run `log repair` there", err)
	}
	return err
}

func inPlace(_ string, f func() error) error { return f() }

// logFiles is the log's directory with the file engine that is configured. Where io_uring is
// refused it is the ordinary one, and a warning says why.
func logFiles(c config.Log, chains *asyncfile.ChainStats, log *slog.Logger) (seglog.FS, error) {
	if err := seglog.CheckDir(c.Dir); err != nil {
		return nil, fmt.Errorf("log.dir: %w", err)
	}
	if c.Engine != string(asyncfile.Uring) {
		return seglog.Dir(c.Dir)
	}
	if err := asyncfile.Available(asyncfile.Uring); err != nil {
		log.Warn("the log's files are read and written by ordinary calls, not by io_uring", "why", err)
		return seglog.Dir(c.Dir)
	}
	return seglog.DirWith(c.Dir, func(path string, create bool) (seglog.File, error) {
		f, err := asyncfile.Open(path, asyncfile.Config{
			Backend: asyncfile.Uring, Write: true, Create: create, Perm: seglog.FilePerm, Chains: chains,
		})
		if err != nil || !create {
			return f, err
		}
		if err := f.Truncate(0); err != nil {
			f.Close()
			return nil, fmt.Errorf("create %s: %w", path, err)
		}
		return f, nil
	})
}
