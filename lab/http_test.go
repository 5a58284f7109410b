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

// lies is an HTTP server whose answers are wrong, in the way that the parameter how says.
func lies(t *contestant.Turn) error {
	addr, err := t.Address()
	if err != nil {
		return err
	}
	page := contestant.Page(t.Int("bytes", 0))
	var last atomic.Pointer[[]byte]
	return http.ListenAndServe(addr, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		switch t.Text("how") {
		case "short":
			_, _ = w.Write(page[:len(page)-1])
		case "moved":
			wrong := slices.Clone(page)
			copy(wrong[4096:], page[:512])
			_, _ = w.Write(wrong)
		case "half":
			_, _ = w.Write(contestant.DigestOf(body[:len(body)/2]))
		case "last": // of the request before
			now := contestant.DigestOf(body)
			before := last.Swap(&now)
			if before == nil {
				before = &now
			}
			_, _ = w.Write(*before)
		case "open":
			c, out, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			fmt.Fprintf(out, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(contestant.Hello), contestant.Hello)
			_ = out.Flush()
			_, _ = io.Copy(io.Discard, c) // until the client gives up
			_ = c.Close()
		}
	}))
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
		{"http-connect", "open", lab.Params{"connections": "4"}, "timeout"},
	} {
		t.Run(c.how, func(t *testing.T) {
			e := *experiment(t, c.experiment)
			e.Claims, e.Advice = nil, nil // which ask for others
			e.Contestants, e.Base, e.Calls = []lab.Contestant{lab.Ours("liar", "lies", "how="+c.how)}, "liar", false
			e.Cells = func(lab.Options) []lab.Params { return []lab.Params{c.cell} }
			r, err := run(t, t.Context(), quickly(t), &e)
			if err != nil {
				t.Fatal(err)
			}
			if row := r.Rows[0]; row.Metrics != nil || !strings.Contains(row.NotRun, "failed") || !strings.Contains(row.NotRun, c.want) {
				t.Errorf("figures %v, not run: %q, want %q", row.Metrics, row.NotRun, c.want)
			}
		})
	}
}
