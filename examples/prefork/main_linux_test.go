package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/prefork"
)

// asked makes the test's own program the example; its value is std or server.
const asked = "TALLYWHEEL_PREFORK_EXAMPLE"

func TestMain(m *testing.M) {
	by := os.Getenv(asked)
	if by == "" {
		os.Exit(m.Run())
	}
	cfg := prefork.Config{
		Listen: []string{"127.0.0.1:0"}, Workers: 2, StartFor: time.Minute,
		LameDuck: 30 * time.Second, DrainFor: time.Minute,
	}
	cfg.Started = func(master *prefork.Master) {
		fmt.Println(master.Addresses()[0])
		for range 3 {
			fmt.Println(master.Restart(context.Background()))
		}
	}
	if err := run(cfg, by == "std"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// TestRestarts restarts the workers while many ask, with net/http behind them and with ours.
func TestRestarts(t *testing.T) {
	for _, by := range []string{"std", "server"} {
		t.Run(by, func(t *testing.T) {
			t.Setenv(asked, by)
			p := testenv.Start(t, os.Args[0])
			lines := func(n int) []string {
				testenv.Until(t, time.Minute, fmt.Sprintf("%d lines of %q, %s", n, p.Out, p.Err),
					func() bool { return strings.Count(p.Out.String(), "\n") >= n })
				return strings.Split(strings.TrimSpace(p.Out.String()), "\n")
			}
			url := "http://" + lines(1)[0] + "/"
			var over atomic.Bool
			var good, bad atomic.Int64
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					c := http.Client{Transport: &http.Transport{DisableKeepAlives: i%2 == 0}, Timeout: time.Minute}
					for !over.Load() {
						res, err := c.Get(url)
						if err == nil {
							_, err = io.Copy(io.Discard, res.Body)
							_ = res.Body.Close()
						}
						if err != nil || res.StatusCode != http.StatusOK {
							t.Log(err)
							bad.Add(1)
							continue
						}
						good.Add(1)
					}
				})
			}
			said := lines(4)
			over.Store(true)
			all.Wait()
			t.Logf("%d requests, %d failed", good.Load(), bad.Load())
			if bad.Load() > 0 || good.Load() == 0 || strings.Join(said[1:], " ") != "<nil> <nil> <nil>" ||
				strings.Contains(p.Err.String(), "did not end in time") {
				t.Errorf("%d requests failed of %d; restarts: %q; it said: %s", bad.Load(), good.Load()+bad.Load(),
					said[1:], p.Err)
			}
			_ = p.Cmd.Process.Signal(syscall.SIGTERM)
		})
	}
}
