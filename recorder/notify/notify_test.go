package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func sends(name string, c Config, send func(context.Context, []byte) error) *Teller {
	return &Teller{[]*post{newPost(name, c, send)}}
}

// An event that fails is tried again, less and less often, and given up in the end; the next one
// is sent.
func TestTriedAgainAndGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries []time.Duration
		began := time.Now()
		var said testenv.Buffer
		tell := sends("x", Config{Timeout: time.Second, Queue: 8, Log: slog.New(slog.NewTextHandler(&said, nil))},
			func(_ context.Context, b []byte) error {
				if strings.Contains(string(b), "bad") {
					tries = append(tries, time.Since(began))
					return errors.New("no")
				}
				return nil
			})
		tell.Tell(Event{Event: "begin", Trouble: "silent", Text: "bad"})
		tell.Tell(Event{Text: "fine"})
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(tries) != MaxTries || tries[1] != time.Second || tries[2] != 3*time.Second ||
			tries[9]-tries[8] != time.Minute {
			t.Errorf("tries at %v", tries)
		}
		if c := tell.Counts()["x"]; c != (Counts{Sent: 1, Failed: 1}) {
			t.Errorf("%+v", c)
		}
		if want := `msg="an event is given up" by=x event=begin trouble=silent error=no`; strings.Count(said.String(),
			want) != 1 {
			t.Errorf("said %s", said.String())
		}
		tell.Close()
	})
}

// A queue that nobody empties keeps the newest events, counts the others, and holds nobody up.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		var got []string
		tell := sends("x", Config{Timeout: time.Hour, Queue: 3, Log: quiet()}, func(_ context.Context, b []byte) error {
			<-free
			var e Event
			if err := json.Unmarshal(b, &e); err != nil {
				t.Error(err)
			}
			got = append(got, e.Text)
			return nil
		})
		tell.Tell(Event{Text: "0"})
		synctest.Wait() // it is on its way
		for i := 1; i < 10; i++ {
			tell.Tell(Event{Text: strconv.Itoa(i)})
		}
		close(free)
		tell.Close()
		if strings.Join(got, "") != "0789" {
			t.Errorf("told %v", got)
		}
		if c := tell.Counts()["x"]; c != (Counts{Sent: 4, Dropped: 6}) {
			t.Errorf("%+v", c)
		}
	})
}

// Close waits for nobody who does not answer.
func TestCloseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tell := sends("x", Config{Timeout: time.Hour, Queue: 3, Log: quiet()},
			func(ctx context.Context, _ []byte) error {
				<-ctx.Done()
				return ctx.Err()
			})
		for range 3 {
			tell.Tell(Event{})
		}
		began := time.Now()
		tell.Close()
		if took := time.Since(began); took > closeLimit {
			t.Errorf("it took %v", took)
		}
		if c, left := tell.Counts()["x"], tell.Unsent()["x"]; c != (Counts{}) || len(left) != 3 {
			t.Errorf("%+v, %d left", c, len(left))
		}
	})
}

// What one Teller has not delivered, also the event on its way, another one goes on with, in order:
// behind an event that fails none goes out while a Teller closes.
func TestAnotherGoesOnWithWhatIsUnsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ill := true
		var got []string
		send := func(_ context.Context, b []byte) error {
			var e Event
			if err := json.Unmarshal(b, &e); err != nil || !strings.HasSuffix(string(b), "}\n") {
				t.Errorf("%q: %v", b, err)
			}
			switch {
			case e.Text == "wrong":
				return permanent{errors.New("no")}
			case ill && e.Text != "1":
				return errors.New("not now")
			}
			got = append(got, e.Text)
			return nil
		}
		var said bytes.Buffer
		c := Config{Timeout: time.Second, Queue: 8, Log: slog.New(slog.NewTextHandler(&said, nil))}
		one := sends("x", c, send)
		for _, text := range []string{"wrong", "0", "1", "2"} {
			one.Tell(Event{Text: text})
		}
		synctest.Wait() // the second one fails
		killed := one.Unsent()
		one.Close()
		if !strings.Contains(said.String(),
			"events were not delivered: the next start sends them, the newest 64 at most\" by=x events=3") {
			t.Errorf("said %s", said.String())
		}
		ill = false
		for _, left := range []Unsent{killed, one.Unsent()} {
			got = nil
			b, err := json.MarshalIndent(left, "", "  ") // whoever keeps them may write them as he likes
			if err != nil {
				t.Fatal(err)
			}
			c.Unsent = nil
			if err := json.Unmarshal(b, &c.Unsent); err != nil {
				t.Fatal(err)
			}
			two := sends("x", c, send)
			two.Tell(Event{Text: "3"})
			two.Close()
			if strings.Join(got, "") != "0123" || len(two.Unsent()) > 0 {
				t.Errorf("told %v, %v left", got, two.Unsent())
			}
		}
		ill, c.Queue, c.Unsent = true, 100, nil
		many := sends("x", c, send)
		for i := range 90 {
			many.Tell(Event{Text: strconv.Itoa(100 + i)})
		}
		many.Close()
		if left := many.Unsent()["x"]; len(left) != MaxUnsent || !strings.Contains(string(left[MaxUnsent-1]), `"189"`) {
			t.Errorf("%d left: %s", len(left), left)
		}
		said.Reset()
		if New(Config{Log: c.Log, Unsent: killed}) != nil ||
			!strings.Contains(said.String(), "no such receiver any more\" by=x events=3") {
			t.Errorf("said %s", said.String())
		}
	})
}

// What a server answers decides whether it is asked again.
func TestWebhook(t *testing.T) {
	var code atomic.Int32
	var mu sync.Mutex
	var got []Event
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var e Event
		b, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(b, &e); err != nil || r.Method != http.MethodPost ||
			r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s %q: %v", r.Method, r.URL, b, err)
		}
		mu.Lock()
		got = append(got, e)
		mu.Unlock()
		if code.Load() == 302 {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(int(code.Load()))
	}))
	defer s.Close()
	for answer, want := range map[int32]struct{ failed, final bool }{
		200: {false, false}, 204: {false, false}, 302: {true, true}, 400: {true, true}, 401: {true, true},
		408: {true, false},
		429: {true, false}, 500: {true, false}, 503: {true, false},
	} {
		code.Store(answer)
		err := (&webhook{s.URL}).send(t.Context(), []byte(`{"event":"begin"}`))
		if (err != nil) != want.failed || errors.As(err, &permanent{}) != want.final {
			t.Errorf("%d: %v", answer, err)
		}
	}
	code.Store(200)
	mu.Lock()
	got = nil
	mu.Unlock()
	tell := New(Config{Webhook: s.URL, Timeout: time.Minute, Queue: 4, Log: quiet()})
	want := Event{
		Event: "begin", Trouble: "missing_unseen", Text: "3 frames never seen", Sources: []string{"a"},
		Count: 3, Unit: "frame",
	}
	tell.Tell(want)
	testenv.Until(t, time.Minute, "it is sent", func() bool { return tell.Counts()["webhook"].Sent > 0 })
	tell.Close()
	mu.Lock()
	defer mu.Unlock()
	if len(got) != 1 || got[0].Text != want.Text || got[0].Sources[0] != "a" || got[0].Count != 3 {
		t.Errorf("%+v", got)
	}
}

// The address of a webhook is the password to it: no error has more of it than the host.
func TestErrorsKeepTheAddressOfAWebhook(t *testing.T) {
	var ill atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ill.Load() == 1 {
			panic(http.ErrAbortHandler)
		}
		http.Error(w, "there is no "+r.URL.Path+" with "+r.URL.RawQuery, http.StatusNotFound)
	}))
	defer s.Close()
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	host := strings.TrimPrefix(s.URL, "http://")
	const secret = "/services/T0000000/GEHEIM-GEHEIM?token=GEHEIM-GEHEIM"
	check := func(err error, want string) {
		t.Helper()
		if err == nil || strings.Contains(err.Error(), "GEHEIM") || strings.Contains(err.Error(), "T0000000") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
	send := func(ctx context.Context, url string) error { return (&webhook{url}).send(ctx, []byte("{}")) }
	check(send(t.Context(), s.URL+secret), host+" answers 404 Not Found: there is no /…/…/…")
	ill.Store(1)
	check(send(t.Context(), s.URL+secret), host+": EOF")
	check(send(t.Context(), "https://user:GEHEIM@"+host+secret),
		host+": http: server gave HTTP response to HTTPS client")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := send(ctx, s.URL+secret); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	check(send(t.Context(), "http://%zz"+secret), "no URL")
	s.Close()
	check(send(t.Context(), s.URL+secret), host+": dial tcp")
	says := command{
		"/bin/sh", "-c", `echo "cannot reach $1" >&2; exit 1`, "sh",
		"https://user:GEHEIM@example.org" + secret,
	}
	check(says.run(t.Context(), nil), "cannot reach https://user:…@example.org/…/…/…")
}

// A command has the event on its input; what it says is in the error.
func TestCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "event")
	run := func(script string) error {
		return command{"/bin/sh", "-c", script, "sh", file}.run(t.Context(), []byte("{\"event\":\"end\"}\n"))
	}
	if err := run(`cat > "$1"`); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "{\"event\":\"end\"}\n" {
		t.Errorf("%q, %v", b, err)
	}
	if err := run(`echo "no such number" >&2; exit 3`); err == nil ||
		!strings.Contains(err.Error(), "exit status 3: no such number") {
		t.Error(err)
	}
	if err := run(`head -c 1000000 /dev/zero`); err != nil { // it says much, and reads nothing
		t.Error(err)
	}
}

// A command that takes too long is killed with everything it has started.
func TestCommandIsKilledWithItsGroup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for ctx.Err() == nil {
			if b, err := os.ReadFile(file); err == nil && strings.HasSuffix(string(b), "\n") {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	err := command{"/bin/sh", "-c", `sleep 1000 & echo $! > "$1.part"; mv "$1.part" "$1"; wait`, "sh", file}.run(ctx,
		nil)
	if err == nil || !strings.Contains(err.Error(), "killed after its time") {
		t.Error(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); alive(pid); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d lives on", pid)
		}
	}
}

// alive reports whether a process runs: one that is killed and not waited for does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(b), ") Z ")
}
