package ipc

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// Process is another process, by a descriptor of it (pidfd, Linux 5.3), which never names a later
// process that has the same number. It needs no thread to wait.
type Process struct {
	f    *os.File
	raw  syscall.RawConn
	done chan struct{}
}

// OpenProcess opens a process by its number. That of a child that has not been waited for, or of
// this process's parent, is surely the process that is meant. No such process: os.ErrNotExist or
// ESRCH is in the error.
func OpenProcess(pid int) (*Process, error) {
	fd, err := sys.OpenProcess(pid)
	if err != nil {
		return nil, fmt.Errorf("ipc: process %d: %w", pid, err)
	}
	return newProcess(fd)
}

// ProcessOf makes a Process of a pidfd that was passed. It closes pidfd if it succeeds.
func ProcessOf(pidfd *os.File) (p *Process, err error) {
	err = onFD(pidfd, func(fd int) error {
		if fd, err = sys.Dup(fd); err != nil {
			return fmt.Errorf("ipc: %w", err)
		}
		p, err = newProcess(fd)
		return err
	})
	if err == nil {
		_ = pidfd.Close()
	}
	return p, err
}

// newProcess takes fd over.
func newProcess(fd int) (*Process, error) {
	err := sys.IsProcess(fd)
	if err == nil {
		err = sys.SetNonblock(fd) // else the poller of the runtime does not take it
	}
	if err != nil {
		_ = sys.CloseFD(fd)
		return nil, fmt.Errorf("ipc: %w", err)
	}
	p := &Process{f: os.NewFile(uintptr(fd), "pidfd"), done: make(chan struct{})}
	if p.raw, err = p.f.SyscallConn(); err == nil {
		err = p.f.SetReadDeadline(time.Time{}) // an error: the poller has not taken it
	}
	if err != nil {
		_ = p.f.Close()
		return nil, fmt.Errorf("ipc: a descriptor of a process that cannot be waited for: %w", err)
	}
	go p.await()
	return p, nil
}

// await closes done when the process has ended. It returns on Close, too.
func (p *Process) await() {
	err := p.raw.Read(func(fd uintptr) bool {
		ended, err := sys.HasInput(int(fd))
		return ended || err != nil
	})
	if err == nil {
		close(p.done)
	}
}

// Done is closed once the process has ended, with all its threads; whether it was waited for does
// not matter. It stays open after [Process.Close].
func (p *Process) Done() <-chan struct{} { return p.done }

// File is the descriptor, to be passed on; it stays the Process's.
func (p *Process) File() *os.File { return p.f }

// Close gives the descriptor back. The process does not notice.
func (p *Process) Close() error { return p.f.Close() }
