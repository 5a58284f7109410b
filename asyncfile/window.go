package asyncfile

import (
	"errors"
	"io"
	"math"
	"os"
	"sync"
)

// window puts one stretch of a file into memory: it holds either bytes read ahead, or writes not
// yet handed over, never both. One lock guards it, so that concurrent users take turns.
type window struct {
	*plain
	mu     sync.Mutex
	buf    []byte // bytes of the file from off
	off    int64
	dirty  bool // buf holds writes
	write  bool // the file was opened for it
	closed bool
}

// gatherBelow bounds the offsets of what is gathered. A write that no file system here may take is
// handed over at once: held, it would fail again and again with whatever comes after it.
const gatherBelow = 1 << 40

func newWindow(p *plain, cfg Config) *window {
	return &window{plain: p, buf: make([]byte, 0, cfg.Buffer), write: cfg.Write}
}

// ReadAt serves from the bytes read ahead. What is larger than the window goes past it.
func (w *window) ReadAt(b []byte, off int64) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, os.ErrClosed
	}
	if off < 0 {
		return 0, negative("read", w.path, off)
	}
	if err := tooFar("read", w.path, len(b), off); err != nil {
		return 0, err
	}
	if w.dirty {
		if err := w.flush(); err != nil {
			return 0, err
		}
	}
	n := w.copyOut(b, off)
	if n == len(b) {
		return n, nil
	}
	b, off = b[n:], off+int64(n)
	if len(b) >= cap(w.buf) {
		m, err := w.plain.ReadAt(b, off)
		return n + m, err
	}
	m, err := w.plain.ReadAt(w.buf[:min(int64(cap(w.buf)), math.MaxInt64-off)], off)
	w.buf, w.off = w.buf[:m], off
	if err != nil && err != io.EOF {
		w.buf = w.buf[:0]
		return n, err
	}
	m = copy(b, w.buf)
	if m < len(b) {
		return n + m, io.EOF
	}
	return n + m, nil
}

func (w *window) copyOut(b []byte, off int64) int {
	if at := off - w.off; at >= 0 && at < int64(len(w.buf)) {
		return copy(b, w.buf[at:])
	}
	return 0
}

// WriteAt gathers writes that lie behind or inside each other. What does not fit, or lies
// elsewhere, is handed over first.
func (w *window) WriteAt(b []byte, off int64) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, os.ErrClosed
	}
	if off < 0 {
		return 0, negative("write", w.path, off)
	}
	if !w.write && len(b) > 0 {
		return 0, readOnly(w.path)
	}
	if err := tooFar("write", w.path, len(b), off); err != nil {
		return 0, err
	}
	if !w.dirty {
		w.buf = w.buf[:0] // read ahead, and old after this
	}
	at := off - w.off
	if w.dirty && (at < 0 || at > int64(len(w.buf)) || int64(len(b)) > int64(cap(w.buf))-at) {
		if err := w.flush(); err != nil {
			return 0, err
		}
	}
	if len(b) > cap(w.buf) || off >= gatherBelow {
		return w.plain.WriteAt(b, off)
	}
	if !w.dirty {
		w.off, at = off, 0
		w.dirty = len(b) > 0
	}
	if need := int(at) + len(b); need > len(w.buf) {
		w.buf = w.buf[:need]
	}
	return copy(w.buf[at:], b), nil
}

// flush hands the gathered writes over. After an error they are still held, so that nothing is lost
// by it.
func (w *window) flush() error {
	if !w.dirty {
		return nil
	}
	n, err := w.plain.WriteAt(w.buf, w.off)
	if err != nil {
		w.buf, w.off = w.buf[:copy(w.buf, w.buf[n:])], w.off+int64(n)
		return err
	}
	w.buf, w.dirty = w.buf[:0], false
	return nil
}

func (w *window) Sync() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return os.ErrClosed
	}
	if err := w.flush(); err != nil {
		return err
	}
	return w.plain.Sync()
}

func (w *window) Truncate(size int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return os.ErrClosed
	}
	if err := w.flush(); err != nil {
		return err
	}
	w.buf = w.buf[:0]
	return w.plain.Truncate(size)
}

func (w *window) Size() (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, os.ErrClosed
	}
	n, err := w.plain.Size()
	if w.dirty {
		n = max(n, w.off+int64(len(w.buf)))
	}
	return n, err
}

func (w *window) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return os.ErrClosed
	}
	w.closed = true
	return errors.Join(w.flush(), w.plain.Close())
}
