package fault

import (
	"errors"
	"io"
	"slices"
	"syscall"
)

// File is an open file of a [Dir].
type File struct {
	d *Dir
	n *inode
}

// ReadAt implements [io.ReaderAt].
func (f *File) ReadAt(b []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if _, err := f.d.fails(OpRead, f.n.name); err != nil {
		return 0, err
	}
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(b, f.n.data[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements [io.WriterAt].
func (f *File) WriteAt(b []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	short, err := f.d.fails(OpWrite, f.n.name)
	if err != nil {
		b = b[:min(max(short, 0), len(b))]
	}
	grow := off + int64(len(b)) - int64(len(f.n.data))
	if grow > 0 && f.d.free >= 0 && grow > f.d.free {
		b = b[:max(0, int64(len(b))-(grow-f.d.free))]
		grow, err = off+int64(len(b))-int64(len(f.n.data)), errors.Join(err, syscall.ENOSPC)
	}
	if len(b) == 0 {
		return 0, err
	}
	if grow > 0 {
		f.n.data = append(f.n.data, make([]byte, grow)...)
		if f.d.free >= 0 {
			f.d.free -= grow
		}
	}
	copy(f.n.data[off:], b)
	for s := off / sector; s*sector < off+int64(len(b)); s++ {
		f.n.dirty[s] = true
		delete(f.n.doubted, s)
	}
	return len(b), err
}

// Sync makes the contents durable.
func (f *File) Sync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if _, err := f.d.fails(OpSync, f.n.name); err != nil {
		for s := range f.n.dirty {
			f.n.doubted[s] = true
		}
		clear(f.n.dirty)
		return err
	}
	if len(f.n.doubted) == 0 {
		if len(f.n.stable) == len(f.n.data) { // copy only what changed: these files are synced often
			for s := range f.n.dirty {
				from, to := s*sector, min((s+1)*sector, int64(len(f.n.data)))
				copy(f.n.stable[from:to], f.n.data[from:to])
			}
		} else {
			f.n.stable = slices.Clone(f.n.data)
		}
	} else {
		f.n.stable = f.n.settle()
	}
	clear(f.n.dirty)
	return nil
}

// settle is the contents with the sectors in doubt as they last were durable.
func (n *inode) settle() []byte {
	out := slices.Clone(n.data)
	for s := range n.doubted {
		from, to := s*sector, min((s+1)*sector, int64(len(out)))
		if from < to {
			clear(out[from:to])
			if from < int64(len(n.stable)) {
				copy(out[from:to], n.stable[from:])
			}
		}
	}
	return out
}

// Size is the length of the file.
func (f *File) Size() (int64, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return int64(len(f.n.data)), nil
}

// Close does nothing.
func (f *File) Close() error { return nil }
