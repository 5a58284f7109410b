package fileopen

import (
	"errors"
	"os"
	"syscall"

	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/lab/bigfile"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/uring"
)

// by opens a file, reads its first 4 KiB and closes it, again and again.
func by(once func(path string, b []byte) error) contestant.Work {
	return func(t *contestant.Turn) error {
		path, b := t.Text("file"), make([]byte, bigfile.Block)
		var failed error
		err := contestant.Repeat(t, 1, 0, func() { failed = errors.Join(failed, once(path, b)) })
		return errors.Join(err, failed)
	}
}

// backend does it by a backend of ours.
func backend(b bigfile.Backend) contestant.Work {
	return by(func(path string, buf []byte) error { return openOnce(path, buf, b.Config) })
}

// mapped does it by mmap alone, with flags.
func mapped(flags int) contestant.Work {
	return by(func(path string, buf []byte) error { return mapOnce(path, buf, flags) })
}

func openOnce(path string, b []byte, cfg asyncfile.Config) error {
	f, err := asyncfile.Open(path, cfg)
	if err != nil {
		return err
	}
	_, err = f.ReadAt(b, 0)
	return errors.Join(err, f.Close())
}

// ringOnce does it by a ring that is made for it.
func ringOnce(path string, b []byte) (err error) {
	r, err := uring.New(uring.Config{Entries: 8})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	plain, err := os.Open(path)
	if err != nil {
		return err
	}
	defer plain.Close()
	f, err := uring.FileOf(plain)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var op uring.Op
	op.Read(f, uring.Wrap(b), 0)
	if err := r.Push(&op); err != nil {
		return err
	}
	if err := r.Wait(1); err != nil {
		return err
	}
	r.Next()
	return op.Err()
}

func mapOnce(path string, b []byte, flags int) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	m, err := syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED|flags)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	copy(b, m)
	return syscall.Munmap(m)
}
