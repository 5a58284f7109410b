package servers

import (
	"io"
	"net/http"
	"runtime"
	"strconv"
	"sync"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/server"
)

// Work is what a request costs. Peers, which are other programs, know it by its name.
type Work struct {
	name string
	task func(*contestant.Turn) task
}

// task answers a request, by a handler of each kind; nil if there is none.
type task struct {
	handler http.Handler
	lean    server.LeanHandler
}

// The works.
var (
	Hello = Work{"hello", func(*contestant.Turn) task { return hello(0) }}
	JSON  = Work{"json", func(*contestant.Turn) task { return small(contestant.JSON, 0) }} // some 1.5 kB, encoded anew
	// POST: a digest of the body; GET: the parameter bytes
	Bodies = Work{"bodies", bodies}
	// the one at the parameter file
	File = Work{"file", file}
	// hello, stamped when it comes to its handler and when it leaves it
	Stamped = Work{"stamped", func(*contestant.Turn) task { return stamped(hello(0)) }}
)

// Yielding is Hello, whose handlers yield to the scheduler so many times.
func Yielding(times int) Work {
	return Work{"hello", func(*contestant.Turn) task { return hello(times) }}
}

func hello(yields int) task {
	text := []byte(contestant.Hello)
	return small(func() []byte { return text }, yields)
}

// stamped stamps what a task answers. What it has stamped so far is at [contestant.StampsPath].
func stamped(by task) task {
	var stamps contestant.Stamps
	return task{
		handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == contestant.StampsPath {
				Answer(w, stamps.Text())
				return
			}
			began := sys.Monotonic()
			by.handler.ServeHTTP(w, r)
			stamps.Add(began, sys.Monotonic())
		}),
		lean: func(w *server.LeanResponse, r *server.LeanRequest) {
			if string(r.Path()) == contestant.StampsPath {
				_, _ = w.Write(stamps.Text()) // into memory
				return
			}
			began := sys.Monotonic()
			by.lean(w, r)
			stamps.Add(began, sys.Monotonic())
		},
	}
}

func bodies(t *contestant.Turn) task {
	page := contestant.Page(t.Int("bytes", 0))
	return task{digests(page), leanDigests(page)}
}

func file(t *contestant.Turn) task {
	path := t.Text("file")
	return task{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, path) })}
}

var plainText = []string{"text/plain"}

// small answers every request by a few bytes.
func small(work func() []byte, yields int) task {
	return task{
		handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range yields {
				runtime.Gosched()
			}
			Answer(w, work())
		}),
		lean: func(w *server.LeanResponse, _ *server.LeanRequest) {
			w.ContentType("text/plain")
			_, _ = w.Write(work()) // into memory
		},
	}
}

// Answer answers by text.
func Answer(w http.ResponseWriter, b []byte) {
	h := w.Header()
	h["Content-Type"] = plainText
	h["Content-Length"] = []string{strconv.Itoa(len(b))}
	_, _ = w.Write(b) // an error is the client's leaving
}

// pieces are what bodies are read by, as large as those that io.Discard takes. With larger ones
// net/http makes fewer calls; without a pool, or by io.ReadAll, garbage is most of the cost.
var pieces = sync.Pool{New: func() any { return new([8 << 10]byte) }}

func digests(page []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			Answer(w, page)
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
		Answer(w, d.Append(nil))
	})
}

func leanDigests(page []byte) server.LeanHandler {
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
