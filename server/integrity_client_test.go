package server_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strconv"
	"time"
)

// What is wrong with an answer.
var (
	errWrong   = errors.New("WRONG")
	errMissing = errors.New("MISSING")
	errHangs   = errors.New("HANGS")
)

// asker is a client of the integrity tests. Its buffers outlive its connections.
type asker struct {
	addr string
	tls  *tls.Config
	lean bool
	rng  *rand.Rand
	done func(answers int)

	tcp   *net.TCPConn
	c     net.Conn // tcp, or TLS on it
	me    string   // as the server sees it
	s     *script
	buf   []byte // input is buf[lo:hi]
	lo    int
	hi    int
	out   []byte
	want  []byte
	reads int // for the pace of slow readers
	sent  chan error
}

// play is one connection.
func (k *asker) play(s *script) (err error) {
	k.s, k.lo, k.hi, k.reads = s, 0, 0, 0
	c, err := net.Dial("tcp", k.addr)
	if err != nil {
		return err
	}
	k.tcp, k.c, k.me = c.(*net.TCPConn), c, c.LocalAddr().String()
	defer func() {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("%w: %w", errHangs, err)
		}
		k.c.Close()
		if k.sent != nil { // the writer has come back, because the connection is closed
			<-k.sent
			k.sent = nil
		}
	}()
	_ = c.SetDeadline(time.Now().Add(2 * soon))
	if s.slow {
		_ = k.tcp.SetReadBuffer(256 << 10)
	}
	if k.tls != nil {
		k.c = tls.Client(c, k.tls)
	}
	resetAt := -1
	if s.abuse == "reset" {
		resetAt = k.rng.IntN(len(s.asks) + 1)
	}
	for i := 0; i < len(s.asks); {
		n := k.batch(i)
		if err := k.send(i, n, i+n == len(s.asks)); err != nil {
			return err
		}
		for j := i; j < i+n; j++ {
			if j == resetAt {
				_ = k.tcp.SetLinger(0)
				_ = k.tcp.Close()
				return nil
			}
			if err := k.answer(&s.asks[j]); err != nil {
				return fmt.Errorf("request %d of %d (%v; before it %v): %w", j, len(s.asks), &s.asks[j],
					&s.asks[max(j-1, 0)], err)
			}
			k.done(1)
		}
		i += n
	}
	if err := k.end(); err != nil {
		return fmt.Errorf("after the last request (%v): %w", &s.asks[len(s.asks)-1], err)
	}
	return nil
}

// batch is how many requests go together: those that wait for something are alone.
func (k *asker) batch(from int) int {
	n := 0
	for most := 1 + k.rng.IntN(32); n < most && from+n < len(k.s.asks); n++ {
		if a := &k.s.asks[from+n]; a.expect == 'w' || a.end == hijack || a.end == deadline {
			break
		}
	}
	return max(n, 1)
}

// send sends n requests, in a goroutine where they are much: the server may not read on before its
// answers are taken.
func (k *asker) send(from, n int, all bool) error {
	if k.sent != nil {
		if err := <-k.sent; err != nil && !k.s.over() {
			return fmt.Errorf("%w: a request could not be sent: %w", errMissing, err)
		}
		k.sent = nil
	}
	out := k.out[:0]
	bodyAt := 0
	for j := from; j < from+n; j++ {
		out, bodyAt = k.s.asks[j].raw(out, k.rng)
	}
	k.out = out
	if a := &k.s.asks[from]; a.expect == 'w' {
		if _, err := k.c.Write(out[:bodyAt]); err != nil {
			return err
		}
		if a.reads != readFirst {
			return nil // the answer comes without
		}
		if err := k.encouraged(); err != nil {
			return fmt.Errorf("request %d (%v): %w", from, a, err)
		}
		out = out[bodyAt:]
	}
	half := all && k.s.halfCloses()
	if all && k.s.abuse == "cuthead" {
		out = append(out, "GET /l-r-/1/1-1 HTTP/1.1\r\nHost: a\r\nX: half a he"...)
	}
	if len(out) > 16<<10 || k.s.slow {
		k.sent = make(chan error, 1)
		go func(sent chan error, c net.Conn, rng *rand.Rand) { sent <- write(c, out, half, k.s.split, rng) }(
			k.sent, k.c, rand.New(rand.NewPCG(k.rng.Uint64(), 0)))
		return nil
	}
	if err := write(k.c, out, half, k.s.split, k.rng); err != nil && !k.s.over() {
		return fmt.Errorf("%w: a request could not be sent: %w", errMissing, err)
	}
	return nil
}

// over reports whether the server ends the connection by itself, perhaps before it has read all.
func (s *script) over() bool { return s.asks[len(s.asks)-1].last() }

// halfCloses reports whether the client ends its side after the last request.
func (s *script) halfCloses() bool {
	switch s.abuse {
	case "half", "cuthead", "cutbody":
		return true
	}
	return false
}

// write writes all, in pieces where it is to be rude, and ends the side.
func write(c net.Conn, out []byte, half, split bool, rng *rand.Rand) error {
	for len(out) > 0 {
		n := len(out)
		if split {
			n = min(n, 1+rng.IntN(1+rng.IntN(3000)))
		}
		if _, err := c.Write(out[:n]); err != nil {
			return err
		}
		if out = out[n:]; split {
			runtime.Gosched()
		}
	}
	if half {
		_ = c.(interface{ CloseWrite() error }).CloseWrite()
	}
	return nil
}

// more reads. What it returns is an end if there is no more.
func (k *asker) more() error {
	if k.lo == k.hi {
		k.lo, k.hi = 0, 0
	} else if k.hi == len(k.buf) {
		k.hi = copy(k.buf, k.buf[k.lo:k.hi])
		k.lo = 0
	}
	room := k.buf[k.hi:]
	if k.s.slow {
		if k.reads++; k.reads%8 == 0 {
			time.Sleep(time.Millisecond) // the pace of a slow reader
		}
	}
	n, err := k.c.Read(room)
	k.hi += n
	if n > 0 {
		return nil
	}
	return err
}

// head reads the head of an answer: its status, and its length: -1 by chunks, -2 to the end.
func (k *asker) head(a *ask) (status, length int, close bool, err error) {
	end := -1
	for {
		if end = bytes.Index(k.buf[k.lo:k.hi], []byte("\r\n\r\n")); end >= 0 {
			break
		}
		if k.hi-k.lo > 2000 {
			return 0, 0, false, fmt.Errorf("%w: no head of an answer: %.200q", errWrong, k.buf[k.lo:k.hi])
		}
		if err := k.more(); err != nil {
			if k.hi > k.lo {
				return 0, 0, false, fmt.Errorf("%w: in the head after %.200q: %w", errMissing, k.buf[k.lo:k.hi], err)
			}
			return 0, 0, false, fmt.Errorf("%w: no answer: %w", errMissing, err)
		}
	}
	head := k.buf[k.lo : k.lo+end+2]
	k.lo += end + 4
	if len(head) < 14 || !bytes.HasPrefix(head, []byte("HTTP/1.1 ")) {
		return 0, 0, false, fmt.Errorf("%w: no head of an answer: %.200q", errWrong, head)
	}
	status, _ = strconv.Atoi(string(head[9:12]))
	if status == 100 || status == 101 {
		return status, 0, false, nil
	}
	length = -2
	id, peer := "", k.me
	for line := range bytes.SplitSeq(head, []byte("\r\n")) {
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch string(name) {
		case "Content-Length":
			length, err = strconv.Atoi(string(value))
		case "Transfer-Encoding":
			length = -1
		case "Connection":
			close = close || string(value) == "close"
		case "X-Id":
			id = string(value)
		case "X-Peer":
			peer = string(value)
		}
	}
	if err == nil && (a != nil && id != a.name() || peer != k.me) {
		err = fmt.Errorf("%w: the answer is for %q of %s, want %q of %s: %.300q", errWrong, id, peer, a.name(), k.me,
			head)
	}
	return status, length, close, err
}

// encouraged waits for 100-continue.
func (k *asker) encouraged() error {
	status, _, _, err := k.head(nil)
	if err == nil && status != 100 {
		err = fmt.Errorf("%w: status %d instead of 100", errWrong, status)
	}
	return err
}

// answer reads the answer to a and compares it.
func (k *asker) answer(a *ask) error {
	if a.end == panicFirst || a.end == exitFirst {
		return k.noMore()
	}
	status, length, close, err := k.head(a)
	for status == 100 && err == nil && a.expect != 0 {
		status, length, close, err = k.head(a)
	}
	if err != nil {
		return err
	}
	if a.end == hijack && status == 101 {
		return k.tunnel(a)
	}
	k.want = a.want(k.want[:0])
	want := k.want
	switch {
	case status != 200 && (status != 204 || a.style != noContent):
		return fmt.Errorf("%w: status %d: %.200q", errWrong, status, k.buf[k.lo:k.hi])
	case a.close && !close || close && !a.last():
		return fmt.Errorf("%w: Connection: close is %v", errWrong, close)
	case a.style == noContent, a.method == "HEAD":
		if length >= 0 && length != len(want) && a.method == "HEAD" && a.style != automatic {
			return fmt.Errorf("%w: Content-Length %d instead of %d", errWrong, length, len(want))
		}
		return nil
	case length >= 0 && length != len(want):
		return fmt.Errorf("%w: Content-Length %d instead of %d", errWrong, length, len(want))
	}
	n, err := k.body(length, want)
	if a.dies() {
		if err == nil {
			return fmt.Errorf("%w: the answer of a handler that died is whole", errWrong)
		}
		if errors.Is(err, errWrong) || errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("at %d of %d: %w", n, len(want), err)
	}
	return nil
}

// body reads a body and compares it with want as it comes.
func (k *asker) body(length int, want []byte) (n int, err error) {
	if length != -1 {
		return k.compare(want, length == -2)
	}
	for {
		size, err := k.chunkSize()
		if err != nil {
			return n, err
		}
		if size > len(want)-n {
			return n, fmt.Errorf("%w: a chunk of %d bytes, where %d are left", errWrong, size, len(want)-n)
		}
		m, err := k.compare(want[n:n+size], false)
		if n += m; err != nil {
			return n, err
		}
		if line, err := k.line(); err != nil || len(line) > 0 {
			return n, errors.Join(err, fmt.Errorf("%w: after a chunk stands %.60q", errWrong, line))
		}
		if size == 0 {
			if n < len(want) {
				return n, fmt.Errorf("%w: the last chunk comes early", errMissing)
			}
			return n, nil
		}
	}
}

func (k *asker) compare(want []byte, toEnd bool) (n int, err error) {
	for n < len(want) {
		if k.lo == k.hi {
			if err := k.more(); err != nil {
				return n, fmt.Errorf("%w: %w", errMissing, err)
			}
		}
		m := min(k.hi-k.lo, len(want)-n)
		got := k.buf[k.lo : k.lo+m]
		if !bytes.Equal(got, want[n:n+m]) {
			i := 0
			for got[i] == want[n+i] {
				i++
			}
			return n + i, fmt.Errorf("%w: the body differs: %.60q instead of %.60q", errWrong, got[i:], want[n+i:])
		}
		n += m
		k.lo += m
	}
	if toEnd {
		return n, k.noMore()
	}
	return n, nil
}

func (k *asker) line() ([]byte, error) {
	for {
		if i := bytes.Index(k.buf[k.lo:k.hi], []byte("\r\n")); i >= 0 {
			line := k.buf[k.lo : k.lo+i]
			k.lo += i + 2
			return line, nil
		}
		if k.hi-k.lo > 200 {
			return nil, fmt.Errorf("%w: no line: %.100q", errWrong, k.buf[k.lo:k.hi])
		}
		if err := k.more(); err != nil {
			return nil, fmt.Errorf("%w: %w", errMissing, err)
		}
	}
}

func (k *asker) chunkSize() (int, error) {
	line, err := k.line()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(string(line), 16, 31)
	if err != nil {
		return 0, fmt.Errorf("%w: no size of a chunk: %.100q", errWrong, line)
	}
	return int(n), nil
}

// noMore waits for the end; a reset is one.
func (k *asker) noMore() error {
	for k.lo == k.hi {
		if err := k.more(); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return fmt.Errorf("the connection does not end: %w", err)
			}
			return nil
		}
	}
	return fmt.Errorf("%w: bytes beyond the last answer: %.300q", errWrong, k.buf[k.lo:k.hi])
}

// end checks how the connection ends after the last answer.
func (k *asker) end() error {
	if k.s.abuse == "cuthead" {
		const refusal = "HTTP/1.1 400 Bad Request\r\n"
		err := k.noMore()
		// a slow client reads it in pieces
		for errors.Is(err, errWrong) && k.hi-k.lo < len(refusal) && k.more() == nil {
		}
		if errors.Is(err, errWrong) && bytes.HasPrefix(k.buf[k.lo:k.hi], []byte(refusal)) {
			err = nil
		}
		return err
	}
	if a := &k.s.asks[len(k.s.asks)-1]; a.expect == 'w' && a.reads != readFirst {
		return nil // net/http waits for the body after all, or for the client to leave
	}
	if k.s.over() || k.s.halfCloses() {
		return k.noMore()
	}
	if k.lo < k.hi {
		return k.noMore() // … are wrong
	}
	return nil
}

// tunnel sends content through a connection that the handler has taken over, and gets it back with
// its hash.
func (k *asker) tunnel(a *ask) error {
	content := piece(nil, a.of(), k.rng.IntN(1+k.rng.IntN(100_000)))
	c := k.c
	sent, split, rng := make(chan error, 1), k.s.split, rand.New(rand.NewPCG(k.rng.Uint64(), 1))
	go func() { sent <- write(c, content, true, split, rng) }()
	want := append(append([]byte(nil), content...), hashText(maphash.Bytes(hashSeed, content))...)
	n, err := k.compare(want, true)
	if err != nil {
		_ = k.tcp.Close()
		<-sent
		return fmt.Errorf("in the tunnel at %d of %d: %w", n, len(want), err)
	}
	if err := <-sent; err != nil {
		return fmt.Errorf("in the tunnel: %w", err)
	}
	return nil
}
