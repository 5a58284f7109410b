package h1

import (
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"strings"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/internal/http1"
)

// body is the body of a request.
type body struct {
	s      *Session
	x      *exchange
	w      *response // until the handler has returned
	mu     sync.Mutex
	left   int64 // of a body of known length
	chunks http1.Chunks
	chunk  bool
	limit  int64 // bytes that may still come; negative: any number
	asks   bool  // the client waits for 100-continue
	done   bool  // read to its end
	shut   bool
	err    error
}

// setBody gives the request its body.
func (w *response) setBody() error {
	s, x := w.s, w.x
	r := &x.req
	h := &s.head
	max := s.cfg.MaxBodyBytes
	if h.Length == 0 {
		r.Body = http.NoBody
		s.c.BodyRead()
		return nil
	}
	if max > 0 && h.Length > max {
		return &http1.Error{Status: http.StatusRequestEntityTooLarge, Reason: "body too large"}
	}
	w.asked = &body{s: s, x: x, w: w, left: h.Length, chunk: h.Chunked, asks: h.Continue, limit: -1}
	if max > 0 {
		w.asked.limit = max
	}
	if h.Chunked {
		r.TransferEncoding = []string{"chunked"}
		if err := x.announceTrailer(); err != nil {
			return err
		}
	}
	r.Body = w.asked
	return nil
}

// announceTrailer fills in the names of the trailer fields that the head promises. Those that say
// how the body is framed are none (RFC 9110, 6.5.1): whoever passed them on would pass on a lie.
func (x *exchange) announceTrailer() error {
	announced, ok := x.req.Header["Trailer"]
	if !ok {
		return nil
	}
	delete(x.req.Header, "Trailer")
	t := http.Header{}
	for _, v := range announced {
		for _, key := range strings.Split(v, ",") {
			switch key = canonical(textproto.TrimString(key)); key {
			case "":
			case "Content-Length", "Transfer-Encoding", "Trailer":
				return &http1.Error{Status: http.StatusBadRequest, Reason: "bad trailer key"}
			default:
				t[key] = nil
			}
		}
	}
	if len(t) > 0 {
		x.req.Trailer = t
	}
	return nil
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.shut:
		return 0, http.ErrBodyReadAfterClose
	case b.err != nil:
		return 0, b.err
	case len(p) == 0:
		return 0, nil
	}
	return b.read(p)
}

func (b *body) read(p []byte) (n int, err error) {
	if b.asks {
		b.asks = false
		if err := b.w.sendContinue(); err != nil {
			return 0, err
		}
	}
	if b.chunk {
		n, err = b.readChunk(p)
	} else {
		n, err = b.s.read(p[:min(int64(len(p)), b.left)], b.left)
		b.left -= int64(n)
		switch {
		case b.left == 0:
			b.done, err = true, io.EOF
		case err == io.EOF:
			err = io.ErrUnexpectedEOF
		}
	}
	if b.limit >= 0 {
		if b.limit -= int64(n); b.limit < 0 {
			err = &http.MaxBytesError{Limit: b.s.cfg.MaxBodyBytes}
		}
	}
	if err != nil {
		b.err = err
	}
	if b.done {
		b.s.c.BodyRead()
	}
	return n, err
}

// WriteTo implements io.WriterTo, so that io.Copy reads by large pieces, which are received
// straight into memory that is used again.
func (b *body) WriteTo(w io.Writer) (done int64, err error) {
	p := copyBuffers.Get().(*copyBuffer)
	defer p.putBack()
	for {
		n, readErr := b.Read(p[:])
		if n > 0 {
			m, err := w.Write(p[:n])
			done += int64(m)
			switch {
			case err != nil:
				return done, err
			case m != n:
				return done, io.ErrShortWrite
			}
		}
		if readErr == io.EOF {
			return done, nil
		} else if readErr != nil {
			return done, readErr
		}
	}
}

// encouraged says that the client was told to send the body.
func (b *body) encouraged() {
	if b == nil {
		return
	}
	b.mu.Lock()
	b.asks = false
	b.mu.Unlock()
}

func (b *body) readChunk(p []byte) (int, error) {
	s := b.s
	for {
		if n := min(b.chunks.Left(), int64(len(p))); n > 0 && s.lo == s.hi { // straight from the connection
			m, err := s.c.ReadPart(p[:n], b.chunks.Left())
			b.chunks.Took(m)
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return m, err
		}
		skip, data, err := b.chunks.Next(s.buf[s.lo:s.hi])
		s.lo += skip
		switch {
		case err != nil:
			return 0, err
		case data > 0:
			n := copy(p, s.buf[s.lo:s.lo+data])
			s.lo += n
			b.chunks.Took(n)
			return n, nil
		case b.chunks.Done():
			b.done = true
			b.trailer()
			return 0, io.EOF
		}
		if err := s.more(); err == io.EOF {
			return 0, io.ErrUnexpectedEOF
		} else if err != nil {
			return 0, err
		}
	}
}

func (b *body) trailer() {
	r := &b.x.req
	b.chunks.Trailer(func(name, value []byte) {
		key := canonical(string(name))
		switch key {
		case "Transfer-Encoding", "Content-Length", "Trailer":
			return
		}
		if r.Trailer == nil {
			r.Trailer = http.Header{}
		}
		r.Trailer[key] = append(r.Trailer[key], string(value))
	})
}

// Close implements io.Closer. The rest of the body is read when the answer is over.
func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shut = true
	return nil
}

// discard reads what the handler left, if it is not much, so that the connection can be used on. It
// returns the error of a body that is not framed as it must be.
func (b *body) discard() *http1.Error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.done || b.err != nil:
	case b.asks: // the client has not sent it, and may or may not do so
		b.err = errUnread
	case b.chunk || b.left <= maxPostHandlerRead:
		b.shut = true // a handler that reads on shall not take this for the end
		p := make([]byte, 4<<10)
		for n := 0; n <= maxPostHandlerRead && b.err == nil && !b.done; {
			m, err := b.read(p)
			n += m
			if err != nil {
				break
			}
		}
	}
	var e *http1.Error
	errors.As(b.err, &e)
	return e
}

// busy reports whether somebody is reading.
func (b *body) busy() bool {
	if b == nil {
		return false
	}
	free := b.mu.TryLock()
	if free {
		b.mu.Unlock()
	}
	return !free
}

// interrupt ends a read that the handler, which has returned, has left to another goroutine: the
// answer would wait for it.
func (b *body) interrupt(w *response) {
	if b.busy() {
		w.timed = true // the deadline is for this request
		_ = b.s.c.SetReadDeadline(longAgo)
	}
}

var longAgo = time.Unix(1, 0)

// unread reports whether something of the body is still to come.
func (b *body) unread() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.done
}

// end takes the body away from the handler, which is over, and reports whether something of it is
// still to come.
func (b *body) end() (unread bool) {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shut = true
	b.w = nil
	return !b.done
}
