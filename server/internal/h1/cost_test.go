package h1

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/server/internal/loop"
)

// memoryStream is a stream whose client has sent all at once, and takes whatever it gets.
type memoryStream struct {
	in    []byte
	wrote int
}

func (m *memoryStream) Read(b []byte) (int, error) {
	if len(m.in) == 0 {
		return 0, io.EOF
	}
	n := copy(b, m.in)
	m.in = m.in[n:]
	return n, nil
}

func (m *memoryStream) Write(b []byte) (int, error) {
	m.wrote += len(b)
	return len(b), nil
}

func (m *memoryStream) WriteAll(b net.Buffers) error {
	_, err := b.WriteTo(m)
	return err
}

func (*memoryStream) SendFile(*os.File, int64, int64) (int64, error) {
	return 0, errors.ErrUnsupported
}

func (m *memoryStream) WriteLast(b []byte) (int, error)         { return m.Write(b) }
func (m *memoryStream) WriteMore(b []byte) (int, error)         { return m.Write(b) }
func (m *memoryStream) ReadPart(b []byte, _ int64) (int, error) { return m.Read(b) }
func (*memoryStream) WaitInput() (bool, error)                  { return true, nil }
func (*memoryStream) OnGone(func())                             {}
func (*memoryStream) AwaitHead(bool)                            {}
func (*memoryStream) BodyRead()                                 {}
func (*memoryStream) Draining() bool                            { return false }
func (*memoryStream) Came() int64                               { return 0 }
func (*memoryStream) Count(int64, int, bool)                    {}
func (*memoryStream) End(bool) error                            { return nil }
func (*memoryStream) Close() error                              { return nil }
func (*memoryStream) Hijack() (net.Conn, []byte, error)         { return nil, nil, errors.ErrUnsupported }
func (*memoryStream) SetDeadline(time.Time) error               { return nil }
func (*memoryStream) SetReadDeadline(time.Time) error           { return nil }
func (*memoryStream) SetWriteDeadline(time.Time) error          { return nil }
func (*memoryStream) LocalAddr() net.Addr                       { return &net.TCPAddr{} }
func (*memoryStream) RemoteAddr() net.Addr                      { return &net.TCPAddr{} }

var (
	plainText   = []string{"text/plain"}
	plainLength = []string{"5"}
	plainBody   = []byte("hello")
)

// answerAll answers n pipelined requests of which the handler makes no garbage.
func answerAll(t testing.TB, n int) {
	const answer = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nContent-Length: 5\r\n\r\nhello"
	cfg := testConfig(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h["Content-Type"] = plainText
		h["Content-Length"] = plainLength
		_, _ = w.Write(plainBody)
	}))
	date := cfg.Date(0)
	cfg.Date = func(int64) []byte { return date }
	m := &memoryStream{in: bytes.Repeat([]byte("GET / HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n"), n)}
	_ = NewSession(cfg, m).Serve() // it ends with the input
	if m.wrote != n*len(answer) {
		t.Fatalf("%d bytes of answers, want %d times %d", m.wrote, n, len(answer))
	}
}

// TestGarbageOfARequest: what is new for each request is what its handler may keep, the request
// with its text and header, and the answer's header, a map and the memory of its first fields.
func TestGarbageOfARequest(t *testing.T) {
	if loop.Poison {
		t.Skip("SKIPPED: the race detector's builds make garbage of their own; run it without -race")
	}
	const n = 10_000
	answerAll(t, 100)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	answerAll(t, n)
	runtime.ReadMemStats(&after)
	if got := float64(after.Mallocs-before.Mallocs) / n; got > 5.5 {
		t.Errorf("%.2f pieces of memory for each request, want 5", got)
	}
	request := uint64(len("GET / HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n"))
	if got := (after.TotalAlloc-before.TotalAlloc)/n - request; got > 1030 {
		t.Errorf("%d bytes for each request", got)
	}
	if got := reflect.TypeFor[exchange]().Size(); got > 480 {
		t.Errorf("an exchange has %d bytes: the allocator gives it 512 or more", got)
	}
}

func BenchmarkPipelined(b *testing.B) {
	b.ReportAllocs()
	answerAll(b, b.N)
}
