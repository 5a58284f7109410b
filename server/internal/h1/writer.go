package h1

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/server/internal/loop"
)

// writer is the http.ResponseWriter of a handler. It hands calls on to the response for as long as
// the handler runs. A handler may have left another goroutine behind that still writes: that must
// not reach somebody else's answer.
type writer exchange

// ErrOver is the error of a handler that writes after it has returned.
var ErrOver = errors.New("server: the handler has returned: its answer is over")

// with calls f with the response, or returns ErrOver.
func (x *writer) with(f func(w *response) error) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.w == nil {
		return ErrOver
	}
	return f(x.w)
}

// Header implements http.ResponseWriter.
func (x *writer) Header() http.Header {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.w == nil {
		return http.Header{}
	}
	return x.w.Header()
}

// WriteHeader implements http.ResponseWriter.
func (x *writer) WriteHeader(status int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.w != nil {
		x.w.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (x *writer) Write(b []byte) (n int, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.w == nil {
		return 0, ErrOver
	}
	return x.w.Write(b)
}

// WriteString implements io.StringWriter.
func (x *writer) WriteString(s string) (int, error) { return x.Write([]byte(s)) }

// Flush implements http.Flusher.
func (x *writer) Flush() { _ = x.FlushError() }

// FlushError is Flush for http.ResponseController.
func (x *writer) FlushError() error { return x.with((*response).flush) }

// copyBuffer is what is copied at a time; of a body, one call of the kernel fetches as much.
type copyBuffer [32 << 10]byte

var copyBuffers = sync.Pool{New: func() any { return new(copyBuffer) }}

// putBack ends the use of a copyBuffer, which Writers were lent.
func (b *copyBuffer) putBack() {
	loop.Lent(b[:]).GiveBack()
	copyBuffers.Put(b)
}

// ReadFrom implements io.ReaderFrom. A file goes from the kernel's cache to the socket, without a
// copy in between, if the length of the answer is known.
func (x *writer) ReadFrom(r io.Reader) (n int64, err error) {
	if f, limit, ok := fileOf(r); ok {
		if n, err = x.sendFile(f, limit); !unsupported(err) {
			return n, err
		}
	}
	b := copyBuffers.Get().(*copyBuffer)
	defer b.putBack()
	m, err := io.CopyBuffer(struct{ io.Writer }{x}, r, b[:])
	return n + m, err
}

// fileOf is the file that r reads, and how much of it.
func fileOf(r io.Reader) (f *os.File, limit *io.LimitedReader, ok bool) {
	if l, is := r.(*io.LimitedReader); is {
		limit, r = l, l.R
	}
	f, ok = r.(*os.File)
	return f, limit, ok
}

func unsupported(err error) bool { return errors.Is(err, errors.ErrUnsupported) }

// sendFile is ReadFrom for a file. errors.ErrUnsupported: it must be read and written.
func (x *writer) sendFile(f *os.File, limit *io.LimitedReader) (n int64, err error) {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0, errors.ErrUnsupported
	}
	off, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, errors.ErrUnsupported
	}
	most := max(info.Size()-off, 0)
	if limit != nil {
		most = min(most, limit.N)
	}
	if most < smallFile {
		return 0, errors.ErrUnsupported
	}
	err = x.with(func(w *response) (err error) {
		n, err = w.sendFile(f, off, most)
		return err
	})
	if n > 0 {
		if limit != nil {
			limit.N -= n
		}
		if _, e := f.Seek(off+n, io.SeekStart); err == nil {
			err = e
		}
	}
	return n, err
}

const smallFile = 16 << 10 // bytes: what is less is read and written with the head, in one call

// EnableFullDuplex is for http.ResponseController.
func (x *writer) EnableFullDuplex() error {
	return x.with(func(w *response) error { w.fullDuplex = true; return nil })
}

// SetReadDeadline is for http.ResponseController.
func (x *writer) SetReadDeadline(t time.Time) error {
	return x.with(func(w *response) error { w.timed = true; return w.s.c.SetReadDeadline(t) })
}

// SetWriteDeadline is for http.ResponseController.
func (x *writer) SetWriteDeadline(t time.Time) error {
	return x.with(func(w *response) error { w.timed = true; return w.s.c.SetWriteDeadline(t) })
}

// CloseNotify implements http.CloseNotifier, which is deprecated but still used.
func (x *writer) CloseNotify() <-chan bool {
	c := make(chan bool, 1)
	(*requestContext)(x).AfterFunc(func() {
		if x.from.s.peerLeft.Load() {
			c <- true
		}
	})
	return c
}

// Hijack implements http.Hijacker.
func (x *writer) Hijack() (c net.Conn, rw *bufio.ReadWriter, err error) {
	err = x.with(func(w *response) error {
		c, rw, err = w.hijack()
		return err
	})
	return c, rw, err
}

// caller is the place in a handler that called the writer, for the log.
func caller() string {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		if !strings.Contains(f.Function, "server/internal/h1.") && !strings.HasPrefix(f.Function, "net/http.") {
			return f.Function + " (" + f.File[strings.LastIndexByte(f.File, '/')+1:] + ":" + itoa(f.Line) + ")"
		}
		if !more {
			return "?"
		}
	}
}
