package own

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
	for _, who := range []string{
		"engine=net/http", "engine=auto mode=goroutine", "engine=uring mode=goroutine", "engine=uring mode=coroutine", "engine=uring mode=inline",
		"engine=epoll mode=goroutine", "engine=epoll mode=coroutine", "engine=epoll mode=inline",
	} {
		if _, name, _ := strings.Cut(who, "engine="); strings.HasPrefix(name, "uring") && server.Available(server.Uring) != nil {
			t.Logf("SKIPPED: %s: %v", who, server.Available(server.Uring))
			continue
		}
		ask := func(work string, cfg loadgen.Config) {
			t.Run(strings.ReplaceAll(who+" "+work, " ", "_"), func(t *testing.T) { asked(t, who+" "+work, cfg) })
		}
		for _, bytes := range []int{10 << 10, 64 << 10, 1 << 20} {
			work := fmt.Sprintf("work=bodies bytes=%d", bytes)
			ask(work, loadgen.Config{Exchanges: load.Answers(bytes)})
			ask(work, loadgen.Config{Method: "POST", Exchanges: load.Bodies(bytes)})
		}
		ask("work=hello", loadgen.Config{Close: true, Exchanges: load.Hello()})
		if !strings.Contains(who, "inline") {
			ask("work=file file="+file, loadgen.Config{Exchanges: load.Answers(fileBytes)})
		}
	}
}

// asked serves as a contestant would, and sends for a moment.
func asked(t *testing.T, args string, cfg loadgen.Config) {
	turn, err := contestant.New(append([]string{"http"}, strings.Fields(args)...), strings.NewReader(""), os.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	s, err := httpServer(turn)
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
