package own

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"sync"

	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/server"
)

// httpWork is what a request asks for, by a handler of each kind; nil if there is none.
type httpWork struct {
	handler http.Handler
	lean    server.LeanHandler
}

// workOf reads the parameter work: hello, which is the default; json, which is encoded anew;
// bodies, which answers POST by a digest of the body and GET by so many bytes; file, which is the
// one at the parameter file.
func workOf(t *contestant.Turn) (httpWork, error) {
	yields := t.Int("yield", 0) // every handler yields to the scheduler so many times
	switch work := t.Text("work"); work {
	case "", "hello":
		hello := []byte(contestant.Hello)
		return small(func() []byte { return hello }, yields), nil
	case "json":
		return small(contestant.JSON, yields), nil
	case "bodies":
		page := contestant.Page(t.Int("bytes", 0))
		return httpWork{bodies(page), leanBodies(page)}, nil
	case "file":
		path := t.Text("file")
		return httpWork{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, path) })}, nil
	default:
		return httpWork{}, fmt.Errorf("no work %q; there are hello, json, bodies and file", work)
	}
}

var plainText = []string{"text/plain"}

// small answers every request by a few bytes.
func small(work func() []byte, yields int) httpWork {
	return httpWork{
		handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range yields {
				runtime.Gosched()
			}
			answer(w, work())
		}),
		lean: func(w *server.LeanResponse, _ *server.LeanRequest) {
			w.ContentType("text/plain")
			_, _ = w.Write(work()) // into memory
		},
	}
}

func answer(w http.ResponseWriter, b []byte) {
	h := w.Header()
	h["Content-Type"] = plainText
	h["Content-Length"] = []string{strconv.Itoa(len(b))}
	_, _ = w.Write(b) // an error is the client's leaving
}

// pieces are what bodies are read by, as large as those that io.Discard takes. With larger ones
// net/http makes fewer calls; without a pool, or by io.ReadAll, garbage is most of the cost.
var pieces = sync.Pool{New: func() any { return new([8 << 10]byte) }}

func bodies(page []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			answer(w, page)
			return
		}
		var d contestant.Digest
		piece := pieces.Get().(*[8 << 10]byte)
		_, err := io.CopyBuffer(&d, r.Body, piece[:])
		pieces.Put(piece)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		answer(w, d.Append(nil))
	})
}

func leanBodies(page []byte) server.LeanHandler {
	return func(w *server.LeanResponse, r *server.LeanRequest) {
		w.ContentType("text/plain")
		if string(r.Method()) != http.MethodPost {
			leanPage(w, page)
			return
		}
		_, _ = w.Write(contestant.DigestOf(r.Body())) // into memory
	}
}

// leanPage answers by memory that never changes: the one place that says how.
func leanPage(w *server.LeanResponse, page []byte) { w.SetStatic(page) }
