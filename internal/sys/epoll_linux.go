package sys

import (
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Readiness of a descriptor, as epoll has it.
const (
	Readable = unix.EPOLLIN | unix.EPOLLRDHUP
	Writable = unix.EPOLLOUT
	Gone     = unix.EPOLLHUP | unix.EPOLLERR
	Ended    = unix.EPOLLRDHUP | Gone // the peer has ended its side, or the connection has
	Urgent   = unix.EPOLLPRI          // out-of-band data, at which receives end early
	Edges    = unix.EPOLLET           // an event for each change, and not for as long as it lasts
)

// Epoll watches descriptors. It belongs to one goroutine: a wait overwrites the events of the one
// before it.
type Epoll struct {
	fd     int
	events []unix.EpollEvent
	coarse bool // epoll_pwait2 is not to be had
}

// NewEpoll makes one that returns at most n events a time.
func NewEpoll(n int) (*Epoll, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	return &Epoll{fd: fd, events: make([]unix.EpollEvent, n)}, nil
}

// Add begins to watch fd for events, level-triggered unless Edges is among them. Events carry id.
func (e *Epoll) Add(fd int, events uint32, id uint64) error {
	return e.control(unix.EPOLL_CTL_ADD, fd, events, id)
}

// Set changes what fd is watched for.
func (e *Epoll) Set(fd int, events uint32, id uint64) error {
	return e.control(unix.EPOLL_CTL_MOD, fd, events, id)
}

// Remove ends the watching.
func (e *Epoll) Remove(fd int) error { return e.control(unix.EPOLL_CTL_DEL, fd, 0, 0) }

func (e *Epoll) control(op, fd int, events uint32, id uint64) error {
	ev := unix.EpollEvent{Events: events, Fd: int32(uint32(id)), Pad: int32(uint32(id >> 32))}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(e.fd, op, fd, &ev))
}

// Wait waits for at most ms milliseconds (negative: for ever), gives the P back meanwhile, and
// returns the number of events. An interruption is no event.
func (e *Epoll) Wait(ms int) (int, error) {
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(e.fd), uintptr(unsafe.Pointer(&e.events[0])),
		uintptr(len(e.events)), uintptr(ms), 0, 0)
	return waited("epoll_pwait", n, errno)
}

// WaitRaw is Wait without telling the scheduler: the calling thread keeps its P. It is not inlined:
// a loop of raw calls needs one real call a turn, or the garbage collector can never stop it.
//
//go:noinline
func (e *Epoll) WaitRaw(ms int) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(e.fd), uintptr(unsafe.Pointer(&e.events[0])),
		uintptr(len(e.events)), uintptr(ms), 0, 0)
	return waited("epoll_pwait", n, errno)
}

// WaitBriefly waits for at most d and keeps the P, as WaitRaw does. Before Linux 5.11 it is Wait.
//
//go:noinline
func (e *Epoll) WaitBriefly(d time.Duration) (int, error) {
	if !e.coarse {
		ts := unix.NsecToTimespec(int64(d))
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(e.fd), uintptr(unsafe.Pointer(&e.events[0])),
			uintptr(len(e.events)), uintptr(unsafe.Pointer(&ts)), 0, 0)
		if errno != unix.ENOSYS && errno != unix.EPERM {
			return waited("epoll_pwait2", n, errno)
		}
		e.coarse = true
	}
	return e.Wait(milliseconds(d))
}

// WaitFor is Wait with a finer time (Linux 5.11; before, milliseconds).
func (e *Epoll) WaitFor(d time.Duration) (int, error) {
	if !e.coarse {
		ts := unix.NsecToTimespec(int64(d))
		n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(e.fd), uintptr(unsafe.Pointer(&e.events[0])),
			uintptr(len(e.events)), uintptr(unsafe.Pointer(&ts)), 0, 0)
		if errno != unix.ENOSYS && errno != unix.EPERM {
			return waited("epoll_pwait2", n, errno)
		}
		e.coarse = true
	}
	return e.Wait(milliseconds(d))
}

// milliseconds rounds up.
func milliseconds(d time.Duration) int { return int((d + time.Millisecond - 1) / time.Millisecond) }

func waited(call string, n uintptr, errno syscall.Errno) (int, error) {
	switch errno {
	case 0:
		return int(n), nil
	case unix.EINTR:
		return 0, nil
	}
	return 0, os.NewSyscallError(call, errno)
}

// Event is event i of the last wait.
func (e *Epoll) Event(i int) (events uint32, id uint64) {
	ev := &e.events[i]
	return ev.Events, uint64(uint32(ev.Fd)) | uint64(uint32(ev.Pad))<<32
}

// Close ends it.
func (e *Epoll) Close() error { return os.NewSyscallError("close", unix.Close(e.fd)) }
