package server

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/uring/uringtest"
)

func TestMain(m *testing.M) {
	uringtest.Prepare()
	testenv.NoLeaks(m)
}

// TestRefused runs what matters where a container refuses io_uring.
func TestRefused(t *testing.T) {
	const these = "Hello|AutoSaysWhatItDoesWithout|WebSocketEcho|TCP|TLS"
	uringtest.Refused(t, these)
	uringtest.Disabled(t, these)
}

func TestAutoSaysWhatItDoesWithout(t *testing.T) {
	var said bytes.Buffer
	s, addr := start(t, Config{
		Handler: http.HandlerFunc(hello), Mode: Coroutine,
		Log: slog.New(slog.NewTextHandler(&said, nil)),
	})
	resp, err := client(t).Get("http://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	c, refused := s.Choice(), Available(Uring)
	switch {
	case refused == nil && (c.Engine != Uring || said.Len() > 0):
		t.Errorf("the engine is %s, and %q was said", c.Engine, said.String())
	case refused != nil && (c.Engine != Epoll || strings.Count(said.String(), "io_uring") == 0 ||
		strings.Count(said.String(), "\n") != 1):
		t.Errorf("the engine is %s, and what was said is %q", c.Engine, said.String())
	}
	said.Reset()
	s, _ = start(t, Config{Handler: http.HandlerFunc(hello), Log: slog.New(slog.NewTextHandler(&said, nil))})
	if c := s.Choice(); c.Engine != Epoll || c.Why == "" || said.Len() > 0 {
		t.Errorf("for handlers on goroutines: %+v, and %q was said", c, said.String())
	}
	if refused != nil {
		if _, err := New(Config{Handler: http.HandlerFunc(hello), Engine: Uring}); err == nil {
			t.Error("an engine that was asked for and is refused is no error")
		}
	}
}
