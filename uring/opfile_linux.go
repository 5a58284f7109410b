package uring

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Current as an offset means the file's own position, and is the only offset that pipes, sockets
// and terminals take.
const Current = -1

// maxTransfer is the most that one read or write moves: the kernel's own limit, less than 2 GiB.
const maxTransfer = math.MaxInt32 &^ 4095

// Read reads into the whole buffer from an offset. Fewer bytes than asked are no error; 0 is the
// end of the file.
func (o *Op) Read(f *File, b *Buffer, off int64) *Op {
	e := o.setFile(OpRead, f)
	e.off = uint64(off)
	return o.memory(b, true)
}

// Write writes the whole buffer at an offset. Fewer bytes than asked are no error.
func (o *Op) Write(f *File, b *Buffer, off int64) *Op {
	e := o.setFile(OpWrite, f)
	e.off = uint64(off)
	return o.memory(b, false)
}

// ReadEach reads from a pipe, a terminal or the like into buffers that the kernel takes from a
// BufferRing, and completes each time with More, as RecvEach does. Picked gives the buffer. Linux
// 6.7.
func (o *Op) ReadEach(f *File, g *BufferRing) *Op {
	o.setFile(OpReadMultishot, f).off = ^uint64(0) // Current
	return o.fromStock(g).repeats()
}

// Part limits the operation just filled to bytes from lo to hi of its buffer.
func (o *Op) Part(lo, hi int) *Op {
	o.mustBeIdle()
	if o.buf == nil || lo < 0 || hi < lo || hi > o.buf.Len() || hi-lo > maxTransfer {
		if o.err != nil {
			return o
		}
		panic("uring: Part: outside the buffer")
	}
	o.lo, o.hi = lo, hi
	return o
}

// Readv reads into several buffers, one after the other.
func (o *Op) Readv(f *File, off int64, bufs ...*Buffer) *Op { return o.vector(OpReadv, f, off, bufs) }

// Writev writes several buffers, one after the other.
func (o *Op) Writev(f *File, off int64, bufs ...*Buffer) *Op { return o.vector(OpWritev, f, off, bufs) }

func (o *Op) vector(code Opcode, f *File, off int64, bufs []*Buffer) *Op {
	e := o.setFile(code, f)
	o.write = code == OpReadv || code == OpRecvMsg
	if slices.Contains(bufs, nil) {
		o.fail(errors.New("no buffer"))
	}
	x := o.extra()
	x.vec = append(x.vec, bufs...)
	x.vector(len(bufs))
	if len(bufs) > 0 {
		e.addr = uint64(uintptr(unsafe.Pointer(&x.iov[0])))
	}
	e.off, e.len = uint64(off), uint32(len(bufs))
	return o
}

// vector makes room for n pairs of address and length, which are filled when the operation is
// pushed.
func (x *aux) vector(n int) {
	if cap(x.iov) < n {
		x.iov = make([]unix.Iovec, n)
	}
	x.iov = x.iov[:n]
}

// Fsync makes the file durable: contents and, unless dataOnly, metadata that reading it back does
// not need. It covers what had completed before it started: chain it behind a write.
func (o *Op) Fsync(f *File, dataOnly bool) *Op {
	e := o.setFile(OpFsync, f)
	if dataOnly {
		e.opFlags = fsyncDatasync
	}
	return o
}

// Fallocate reserves room; mode is that of fallocate(2), 0 to grow the file.
func (o *Op) Fallocate(f *File, mode uint32, off, n int64) *Op {
	e := o.setFile(OpFallocate, f)
	e.off, e.addr, e.len = uint64(off), uint64(n), mode
	return o
}

// AdviseFile tells how a part of the file will be read: advice is that of posix_fadvise(2), as
// unix.FADV_WILLNEED. n is at most 2 GiB; 0 means to the end.
func (o *Op) AdviseFile(f *File, off, n int64, advice int) *Op {
	e := o.setFile(OpFadvise, f)
	if off < 0 || n < 0 || n > math.MaxInt32 {
		o.fail(fmt.Errorf("%d bytes at %d: want 0 to %d", n, off, math.MaxInt32))
	}
	e.off, e.len, e.opFlags = uint64(off), uint32(n), uint32(advice)
	return o
}

// Advise tells what becomes of a buffer's memory: advice is that of madvise(2), as
// unix.MADV_DONTNEED. The kernel does it to whole pages, and may throw away what they hold: so the
// buffer must be one of an Arena that has its pages for itself, and is not registered.
func (o *Op) Advise(b *Buffer, advice int) *Op {
	o.set(OpMadvise).opFlags = uint32(advice)
	o.memory(b, true)
	return o.special()
}

// advisable says why a buffer's memory cannot be had by Advise.
func (b *Buffer) advisable() error {
	page := os.Getpagesize()
	switch {
	case b.arena == nil:
		return errors.New("buffer: of Go memory: want one of an arena")
	case len(b.mem)%page != 0:
		return fmt.Errorf("buffer of %d bytes: want whole pages of %d", len(b.mem), page)
	case b.arena.ring != nil:
		return errors.New("buffer: its arena is registered with a ring, which would go on with the old pages")
	}
	return nil
}

// Truncate sets the size of the file. Linux 6.9.
func (o *Op) Truncate(f *File, size int64) *Op {
	o.setFile(OpFtruncate, f).off = uint64(size)
	return o
}

// Open opens a path, relative to the working directory; flags are os.O_RDWR and so on, perm the
// permissions of a new file. NewFile gives the file.
func (o *Op) Open(path string, flags int, perm fs.FileMode) *Op {
	e := o.set(OpOpenAt)
	e.fd, e.addr, e.len, e.opFlags = unix.AT_FDCWD, o.path(path), uint32(perm.Perm()),
		uint32(flags|unix.O_CLOEXEC|unix.O_LARGEFILE)
	return o
}

// Remove removes a name, relative to the working directory: of a file, or with dir of an empty
// folder.
func (o *Op) Remove(path string, dir bool) *Op {
	e := o.set(OpUnlinkAt)
	e.fd, e.addr = unix.AT_FDCWD, o.path(path)
	if dir {
		e.opFlags = unix.AT_REMOVEDIR
	}
	return o
}

// Mkdir makes a folder, relative to the working directory. Linux 5.15.
func (o *Op) Mkdir(path string, perm fs.FileMode) *Op {
	e := o.set(OpMkdirAt)
	e.fd, e.addr, e.len = unix.AT_FDCWD, o.path(path), uint32(perm.Perm())
	return o
}

// Rename gives a file or folder another name, both relative to the working directory. What has the
// new name is replaced.
func (o *Op) Rename(from, to string) *Op {
	e := o.set(OpRenameAt)
	e.fd, e.addr = unix.AT_FDCWD, o.path(from)
	e.len = 1<<32 + unix.AT_FDCWD // the folder that the new name is relative to
	x := o.aux
	old := x.path
	e.off = o.path(to)
	x.path2, x.path = x.path, old
	return o
}

func (o *Op) path(p string) uint64 {
	b, err := unix.ByteSliceFromString(p)
	if err != nil {
		o.fail(&fs.PathError{Op: o.Code().String(), Path: p, Err: err})
		b = []byte{0}
	}
	x := o.extra()
	x.path = b
	return uint64(uintptr(unsafe.Pointer(&b[0])))
}

// Direct makes the Open, Accept or Socket just filled give a direct descriptor, in a free slot of
// the ring's table. It completes with ENFILE if the table is full, or there is none: see
// RegisterFiles. A slot is free again only when its File is closed: nothing else clears it before
// the ring's end. Linux 5.19.
func (o *Op) Direct() *Op {
	e := o.adjust()
	switch o.Code() {
	case OpOpenAt, OpAccept, OpSocket:
	default:
		panic("uring: Direct: " + o.Code().String() + " makes no descriptor")
	}
	e.fileIdx = fileIndexAlloc
	e.opFlags &^= unix.O_CLOEXEC // means nothing there, and is refused
	if o.Code() == OpSocket {
		e.off &^= unix.SOCK_CLOEXEC // which has it in its type
	}
	o.direct = true
	return o.special()
}

// NewFile is the file that the newest completion of an Open, Accept, Socket or Install made, the
// caller's to close, and an error the second time: a descriptor has one owner. Every descriptor
// must be asked for: it is open whether it is or not. ring is the ring of a direct one.
func (o *Op) NewFile(ring *Ring) (*File, error) {
	fd, err := o.Result()
	switch code := o.Code(); {
	case err != nil:
		return nil, err
	case code != OpOpenAt && code != OpAccept && code != OpSocket && code != OpFilesUpdate:
		return nil, fmt.Errorf("uring: new file: %v makes no descriptor", code)
	case o.self != o:
		return nil, fmt.Errorf("uring: new file: %v: a copy: the descriptor is the original's", code)
	case o.flags&nothing != 0:
		return nil, fmt.Errorf("uring: new file: %v: no completion, or its descriptor was taken before", code)
	case o.direct && ring != o.side.home:
		return nil, fmt.Errorf("uring: new file: %v: the descriptor is of another ring", code)
	}
	o.flags |= nothing
	f := NewFile(fd)
	if o.Code() == OpFilesUpdate {
		f = NewFile(int(o.aux.fd))
	}
	if o.direct { // its slot is cleared by the owner of the ring, which the collector is not
		f.ring = ring
	} else {
		f.closeWhenForgotten()
	}
	return f, nil
}

// CloseFile closes a file that no other operation uses. The File is closed once this has been
// pushed, whatever comes of it: where the operation is cancelled, by its chain or by the end of the
// ring, an ordinary call closes the descriptor.
func (o *Op) CloseFile(f *File) *Op {
	o.set(OpClose)
	if o.more().closing = f; f == nil {
		o.fail(errors.New("no file"))
	}
	return o.special()
}

// Statx asks for the facts about a path, relative to the working directory; Stat gives them.
func (o *Op) Statx(path string) *Op {
	e := o.set(OpStatx)
	e.fd, e.addr, e.len = unix.AT_FDCWD, o.path(path), unix.STATX_BASIC_STATS
	e.off = uint64(uintptr(unsafe.Pointer(&o.extra().statx)))
	return o
}

// Stat is what Statx found.
type Stat struct {
	Size    int64 // bytes
	Blocks  int64 // of 512 bytes, allocated
	Inode   uint64
	Links   uint32
	Mode    fs.FileMode
	ModTime time.Time
}

// Stat is the answer to a Statx that succeeded.
func (o *Op) Stat() Stat {
	s := &o.extra().statx
	mode := fs.FileMode(s.Mode & 0o777)
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	case unix.S_IFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	case unix.S_IFBLK:
		mode |= fs.ModeDevice
	case unix.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		mode |= fs.ModeSocket
	}
	return Stat{
		Size: int64(s.Size), Blocks: int64(s.Blocks), Inode: s.Ino, Links: s.Nlink, Mode: mode,
		ModTime: time.Unix(s.Mtime.Sec, int64(s.Mtime.Nsec)),
	}
}

// Splice moves n bytes between two files without taking them to user space; one must be a pipe, and
// its offset is Current. This is what sendfile is made of: io_uring has no operation of that name.
func (o *Op) Splice(from *File, fromOff int64, to *File, toOff int64, n int) *Op {
	e := o.setFile(OpSplice, to)
	if o.more().source = from; from == nil {
		o.fail(errors.New("no file"))
	}
	if n < 0 {
		o.fail(fmt.Errorf("%d bytes", n))
	}
	e.off, e.addr, e.len = uint64(toOff), uint64(fromOff), uint32(min(n, maxTransfer))
	return o.special()
}

// Poll completes once the file is ready for one of the events (unix.POLLIN and so on), with Res the
// events that it is ready for.
func (o *Op) Poll(f *File, events uint32) *Op {
	o.setFile(OpPollAdd, f).opFlags = events
	return o
}

// UpdatePoll sets what a PollEach of the same ring waits for. It completes with ENOENT if that is
// not in flight. Linux 5.13.
func (o *Op) UpdatePoll(target *Op, events uint32) *Op {
	e := o.set(OpPollRemove)
	e.len, e.opFlags = pollUpdateEvents|pollAddMulti, events
	return o.aimAt(target)
}

// PollEach is Poll that completes each time, with More, until it is cancelled or fails.
func (o *Op) PollEach(f *File, events uint32) *Op {
	e := o.setFile(OpPollAdd, f)
	e.opFlags, e.len = events, pollAddMulti
	return o.repeats()
}
