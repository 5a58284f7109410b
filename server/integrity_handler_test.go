package server_test

import (
	"bytes"
	"errors"
	"hash/maphash"
	"io"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/server"
)

// workspace is what a handler needs; handlers run on many goroutines.
type workspace struct {
	a    ask
	want []byte
	in   []byte
	hash maphash.Hash
}

var workspaces = sync.Pool{New: func() any { return &workspace{in: make([]byte, 1500)} }}

// answerAsk answers a request as it says itself.
func answerAsk(w http.ResponseWriter, r *http.Request) {
	ws := workspaces.Get().(*workspace)
	defer workspaces.Put(ws)
	a := &ws.a
	*a = ask{method: r.Method}
	if err := a.parse(r.URL.Path); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h["X-Id"], h["X-Peer"], h["Content-Type"] = []string{a.name()}, []string{r.RemoteAddr}, nil
	switch a.end {
	case panicFirst:
		panic(http.ErrAbortHandler)
	case exitFirst:
		runtime.Goexit()
	case serverClose:
		h["Connection"] = []string{"close"}
	case hijack:
		hijackAsk(w)
		return
	case deadline:
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	}
	hash := noHash
	switch a.reads {
	case readFirst:
		hash = ws.read(r.Body)
	case readPart:
		_, _ = r.Body.Read(ws.in[:1])
	case readLate:
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	if a.style == noContent {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	out := append(ws.want[:0], a.name()...)
	out = append(out, '\n')
	out = piece(out, a.of(), a.size)
	ws.want = out
	a.write(w, out, len(out)+hashSize)
	if a.reads == readLate {
		_ = http.NewResponseController(w).Flush()
		hash = ws.read(r.Body)
	}
	_, _ = io.WriteString(w, hash)
}

// write writes the answer up to its hash.
func (a *ask) write(w http.ResponseWriter, out []byte, total int) {
	part := len(out)
	if a.style == byLength || a.style == inPieces {
		w.Header()["Content-Length"] = []string{strconv.Itoa(total)}
	}
	switch a.style {
	case inPieces, chunks:
		part = 777
	case flushed:
		part = len(out)/3 + 1
	case copied:
		_, _ = io.Copy(w, struct{ io.Reader }{bytes.NewReader(out)})
		return
	}
	for i := 0; len(out) > 0; i++ {
		n := min(part, len(out))
		_, _ = w.Write(out[:n])
		out = out[n:]
		if a.style == flushed {
			w.(http.Flusher).Flush()
		}
		if i == 0 && (a.end == panicLater || a.end == exitLater) {
			w.(http.Flusher).Flush()
			if a.end == panicLater {
				panic(http.ErrAbortHandler)
			}
			runtime.Goexit()
		}
	}
}

// read reads a body to its end and says what it was.
func (ws *workspace) read(body io.Reader) string {
	ws.hash.SetSeed(hashSeed)
	for {
		n, err := body.Read(ws.in)
		_, _ = ws.hash.Write(ws.in[:n])
		switch {
		case err == io.EOF:
			return hashText(ws.hash.Sum64())
		case errors.Is(err, os.ErrDeadlineExceeded):
			return tooLate
		case errors.Is(err, io.ErrUnexpectedEOF):
			return cutHash
		case err != nil:
			return otherwise
		}
	}
}

// hijackAsk takes the connection over and sends back what comes until it ends, and the hash of it.
func hijackAsk(w http.ResponseWriter) {
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer c.Close()
	_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
	var hash maphash.Hash
	hash.SetSeed(hashSeed)
	b := make([]byte, 1500)
	for {
		n, err := rw.Read(b)
		_, _ = hash.Write(b[:n])
		if _, e := c.Write(b[:n]); e != nil {
			return
		}
		if err != nil {
			break
		}
	}
	_, _ = io.WriteString(c, hashText(hash.Sum64()))
}

// leanAsk is answerAsk for a LeanHandler.
func leanAsk(w *server.LeanResponse, r *server.LeanRequest) {
	a := ask{method: string(r.Method())}
	if err := a.parse(string(r.Path())); err != nil {
		w.Status(http.StatusInternalServerError)
		_, _ = w.WriteString(err.Error())
		return
	}
	w.Header("X-Id", a.name())
	switch a.end {
	case panicFirst:
		panic(http.ErrAbortHandler)
	case exitFirst:
		runtime.Goexit()
	case serverClose:
		w.Close()
	}
	hash := hashText(maphash.Bytes(hashSeed, r.Body()))
	switch a.style {
	case ownBuffer, ownAndMore:
		at := placeOf(a.of()) % (len(block) - a.size)
		w.SetBuffer(block[at : at+a.size])
		if a.style == ownAndMore {
			_, _ = w.WriteString(hash)
		}
	case serverBuf:
		b := append(w.Buffer(), a.name()...)
		w.SetBuffer(piece(append(b, '\n'), a.of(), a.size))
		_, _ = w.WriteString(hash)
	default:
		_, _ = w.WriteString(a.name() + "\n")
		w.SetBuffer(piece(w.Buffer(), a.of(), a.size))
		_, _ = w.WriteString(hash)
	}
}
