package uring

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// File is a descriptor that operations use: an ordinary one, or a direct one, which lives in the
// table of one ring and spares every operation the look-up. It cannot be closed while operations
// use it, so that its number cannot come to mean another file under them. It belongs to one
// goroutine at a time, as a ring does.
type File struct {
	n    int32 // the descriptor, or the slot of a direct one, and 1; 0: closed
	uses int32 // operations queued or in flight
	ring *Ring // of a direct descriptor

	// forgotten closes the descriptor when nobody has the File any more; nil: nothing does.
	forgotten *runtime.Cleanup
}

// NewFile takes over a descriptor: Close closes it. What can be no descriptor is a closed file.
func NewFile(fd int) *File {
	if fd < 0 || fd >= math.MaxInt32 {
		return &File{}
	}
	return &File{n: int32(fd) + 1}
}

// closeWhenForgotten has the collector close the descriptor, as it does that of an os.File. It is
// for descriptors that were made for this File: of others somebody else may have the number, too.
func (f *File) closeWhenForgotten() {
	c := runtime.AddCleanup(f, func(fd int) { unix.Close(fd) }, f.FD())
	f.forgotten = &c
}

// taken leaves the descriptor to who closes it.
func (f *File) taken() {
	f.n = 0
	if f.forgotten != nil {
		f.forgotten.Stop()
	}
}

// num is the number that the kernel knows the file by.
func (f *File) num() int32 { return f.n - 1 }

// check says why operations of a ring cannot have the file.
func (f *File) check(r *Ring) error {
	switch {
	case f.n <= 0:
		return fmt.Errorf("file: %w", ErrClosed)
	case f.ring != nil && f.ring != r:
		return errors.New("file: registered with another ring")
	}
	return nil
}

// FileOf duplicates the descriptor of an *os.File, *net.TCPConn or the like. The two are closed
// independently, so that neither a finalizer nor a Close elsewhere can take the descriptor from
// operations in flight. Descriptors of Go's pipes and sockets do not block; older kernels answer a
// Read of those with EAGAIN where newer ones wait: Poll first, or use Recv. Of what is closed the
// error is os.ErrClosed or net.ErrClosed.
func FileOf(c syscall.Conn) (*File, error) {
	if c == nil {
		return nil, errors.New("uring: no file")
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("uring: %w", err)
	}
	fd, dupErr := -1, error(nil)
	if err := raw.Control(func(n uintptr) { fd, dupErr = unix.FcntlInt(n, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		if f, ok := c.(*os.File); ok && !errors.Is(err, os.ErrInvalid) { // an error that os keeps to itself
			err = fmt.Errorf("%s: %w", f.Name(), os.ErrClosed)
		}
		return nil, fmt.Errorf("uring: %w", err)
	}
	if dupErr != nil {
		return nil, fmt.Errorf("uring: %w", os.NewSyscallError("fcntl", dupErr))
	}
	f := NewFile(fd)
	f.closeWhenForgotten()
	return f, nil
}

// FD is the descriptor, or the slot of a direct one; -1 once closed.
func (f *File) FD() int { return int(f.num()) }

// Direct reports whether the file is a direct descriptor.
func (f *File) Direct() bool { return f.ring != nil }

// Close closes the descriptor. While operations use it, it refuses with ErrBusy: cancel them first.
func (f *File) Close() error {
	if f.n <= 0 {
		return fmt.Errorf("uring: file: %w", ErrClosed)
	}
	if f.uses > 0 {
		return fmt.Errorf("uring: file: %d operations: %w", f.uses, ErrBusy)
	}
	fd := f.num()
	f.taken()
	if f.ring == nil {
		return os.NewSyscallError("close", unix.Close(int(fd)))
	}
	if f.ring.closed() {
		return nil // went with its ring
	}
	return f.ring.clearSlot(fd)
}

// RegisterFiles gives the ring a table of n slots for direct descriptors, all empty; once, later it
// is ErrBusy. Linux 5.19.
func (r *Ring) RegisterFiles(n int) error {
	if n < 1 || n > 1<<20 {
		return fmt.Errorf("uring: register %d files: want 1 to %d", n, 1<<20)
	}
	if r.closed() {
		return fmt.Errorf("uring: register files: ring: %w", ErrClosed)
	}
	if r.files > 0 {
		return fmt.Errorf("uring: register files: the ring has a table of %d: %w", r.files, ErrBusy)
	}
	reg := rsrcRegister{nr: uint32(n), flags: registerSparse}
	if _, e := r.register(registerFiles2, unsafe.Pointer(&reg), int(unsafe.Sizeof(reg))); e != 0 {
		switch e {
		case unix.EINVAL:
			return notSupported("table of direct descriptors", "5.19")
		case unix.EMFILE:
			return fmt.Errorf("uring: register %d files: %w; raise ulimit -n", n, e)
		}
		return fmt.Errorf("uring: register files: %w", r.refused("io_uring_register", e))
	}
	r.files = n
	return nil
}

// Install puts an ordinary descriptor into a free slot of the ring's table; NewFile gives it. Both
// are closed independently. It completes with ENFILE if the table is full, and ENXIO if there is
// none. Linux 5.19.
func (o *Op) Install(f *File) *Op {
	e := o.set(OpFilesUpdate)
	o.more().source, o.direct = f, true
	if f == nil || f.ring != nil {
		o.fail(errors.New("want an ordinary descriptor"))
	}
	e.addr, e.len, e.off = uint64(uintptr(unsafe.Pointer(&o.extra().fd))), 1, uint64(fileIndexAlloc)
	return o.special()
}

// clearSlot empties a slot of the table.
func (r *Ring) clearSlot(slot int32) error {
	r.fdArg = -1 // a field of the ring: what the argument points to must not move with the stack
	u := rsrcUpdate{offset: uint32(slot), data: uint64(uintptr(unsafe.Pointer(&r.fdArg)))}
	if _, e := r.register(registerFilesUpdate, unsafe.Pointer(&u), 1); e != 0 {
		return r.refused("io_uring_register", e)
	}
	return nil
}
