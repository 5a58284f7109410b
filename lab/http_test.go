package lab_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/contestant"
	_ "github.com/tallywheel/tallywheel/lab/experiments"
)

// lie answers wrongly: page is what was asked for, body what came.
type lie func(w http.ResponseWriter, page, body []byte)

// lies is an HTTP server whose answers are wrong.
func lies(how lie) contestant.Work {
	return func(t *contestant.Turn) error {
		addr, err := t.Address()
		if err != nil {
			return err
		}
		page := contestant.Page(t.Int("bytes", 0))
		return http.ListenAndServe(addr, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if body, err := io.ReadAll(r.Body); err == nil {
				how(w, page, body)
			}
		}))
	}
}

// liars are the servers whose answers are wrong, by how they are.
var liars = map[string]lie{
	"short": func(w http.ResponseWriter, page, _ []byte) { _, _ = w.Write(page[:len(page)-1]) },
	"moved": func(w http.ResponseWriter, page, _ []byte) {
		wrong := slices.Clone(page)
		copy(wrong[4096:], page[:512])
		_, _ = w.Write(wrong)
	},
	"half": func(w http.ResponseWriter, _, body []byte) {
		_, _ = w.Write(contestant.DigestOf(body[:len(body)/2]))
	},
	"last": func() lie { // of the request before
		var last atomic.Pointer[[]byte]
		return func(w http.ResponseWriter, _, body []byte) {
			now := contestant.DigestOf(body)
			before := last.Swap(&now)
			if before == nil {
				before = &now
			}
			_, _ = w.Write(*before)
		}
	}(),
	"open": func(w http.ResponseWriter, _, _ []byte) {
		c, out, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		fmt.Fprintf(out, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(contestant.Hello),
			contestant.Hello)
		_ = out.Flush()
		_, _ = io.Copy(io.Discard, c) // until the client gives up
		_ = c.Close()
	},
}

func experiment(t *testing.T, name string) *lab.Experiment {
	t.Helper()
	for _, e := range lab.Experiments() {
		if e.Name == name {
			return e
		}
	}
	t.Fatalf("no experiment %s", name)
	return nil
}

// TestWrongAnswersAreFound: the experiments on bodies and connections take no figures from a server
// that answers wrongly, and say what was wrong.
func TestWrongAnswersAreFound(t *testing.T) {
	get, post := lab.Params{"direction": "get", "bytes": "10240"}, lab.Params{"direction": "post", "bytes": "65536"}
	for _, c := range []struct {
		experiment, how string
		cell            lab.Params
		want            string
	}{
		{"http-bodies", "short", get, "wrong length"},
		{"http-bodies", "moved", get, "wrong content"},
		{"http-bodies", "half", post, "wrong content"},
		{"http-bodies", "last", post, "wrong content"},
		{"http-connect", "open", lab.Params{"connections": "4"}, "not closed by the server"},
	} {
		t.Run(c.how, func(t *testing.T) {
			e := *experiment(t, c.experiment)
			e.Claims, e.Advice = nil, nil // which ask for others
			e.Contestants, e.Base, e.Calls = []*lab.Contestant{our(c.how)}, nil, false
			e.Cells = func(lab.Options) []lab.Params { return []lab.Params{c.cell} }
			r, err := run(t, t.Context(), quickly(t), &e)
			if err != nil {
				t.Fatal(err)
			}
			if row := r.Rows[0]; row.Metrics != nil || !strings.Contains(row.NotRun, "failed") ||
				!strings.Contains(row.NotRun, c.want) {
				t.Errorf("figures %v, not run: %q, want %q", row.Metrics, row.NotRun, c.want)
			}
		})
	}
}
