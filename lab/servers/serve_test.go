package servers

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/lab/load"
	"github.com/tallywheel/tallywheel/loadgen"
	"github.com/tallywheel/tallywheel/server"
)

// TestHTTPAnswers: every engine and mode answers rightly to what the experiments on bodies, files
// and connections ask.
func TestHTTPAnswers(t *testing.T) {
	const fileBytes = 300_000
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, contestant.Page(fileBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, k := range map[string]Kind{
		"net/http": {}, "auto": {Engine: server.Auto, Mode: server.Goroutine},
		"uring-goroutine": {Engine: server.Uring, Mode: server.Goroutine},
		"uring-coroutine": {Engine: server.Uring, Mode: server.Coroutine},
		"uring-inline":    {Engine: server.Uring, Mode: server.Inline},
		"epoll-goroutine": {Engine: server.Epoll, Mode: server.Goroutine},
		"epoll-coroutine": {Engine: server.Epoll, Mode: server.Coroutine},
		"epoll-inline":    {Engine: server.Epoll, Mode: server.Inline},
	} {
		if k.Engine == server.Uring && server.Available(server.Uring) != nil {
			t.Logf("SKIPPED: %s: %v; run on a kernel that has it and lets this process use it", name, server.Available(server.Uring))
			continue
		}
		ask := func(w Work, param string, cfg loadgen.Config) {
			t.Run(name+"_"+w.name+"_"+filepath.Base(param), func(t *testing.T) { asked(t, k, w, param, cfg) })
		}
		for _, bytes := range []int{10 << 10, 64 << 10, 1 << 20} {
			param := fmt.Sprintf("bytes=%d", bytes)
			ask(Bodies, param, loadgen.Config{Exchanges: load.Answers(bytes)})
			ask(Bodies, param, loadgen.Config{Method: "POST", Exchanges: load.Bodies(bytes)})
		}
		ask(Stamped, "bytes=0", loadgen.Config{Exchanges: load.Hello()})
		ask(Hello, "bytes=0", loadgen.Config{Close: true, Exchanges: load.Hello()})
		if k.Mode != server.Inline {
			ask(File, "file="+file, loadgen.Config{Exchanges: load.Answers(fileBytes)})
		}
	}
}

// asked serves as a contestant would, and sends for a moment.
func asked(t *testing.T, k Kind, w Work, param string, cfg loadgen.Config) {
	turn, err := contestant.New([]string{"http", param}, strings.NewReader(""), os.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	s, err := k.New(turn, w)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ln) }()
	cfg.URL, cfg.Connections = "http://"+ln.Addr().String()+"/", 4
	cfg.Duration, cfg.Timeout = 20*time.Millisecond, time.Minute
	r, err := loadgen.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.Failed() > 0 || r.Requests+r.Late == 0 {
		t.Errorf("%d answered rightly, errors %v", r.Requests+r.Late, r.Errors)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	<-ended // its error says that it was closed
}
