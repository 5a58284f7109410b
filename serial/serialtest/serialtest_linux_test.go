package serialtest_test

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/serial/serialtest"
)

// An unplug right after Deliver must not take bytes from a reader that is far behind. Drain alone
// lets that happen: a reader that has emptied the line discipline has a moment before it asks for
// more.
func TestUnplugAfterDeliverLosesNothing(t *testing.T) {
	rounds := 50
	if testing.Short() {
		rounds = 30
	}
	link := filepath.Join(t.TempDir(), "port")
	port, err := serialtest.NewPort(link)
	if err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	defer stop.Store(true)
	for range 2 { // other work, so that the reader is interrupted everywhere
		go func() {
			for !stop.Load() {
			}
		}()
	}
	last := make([]byte, 128)
	for round := range rounds {
		fd, err := syscall.Open(link, syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan int)
		go func() {
			n, b := 0, make([]byte, 4096)
			for {
				m, err := syscall.Read(fd, b)
				if err == syscall.EINTR {
					continue
				}
				if m <= 0 {
					break
				}
				n += m
			}
			syscall.Close(fd)
			got <- n
		}()
		sent := 0
		for b := make([]byte, 40_000); sent < len(b); {
			n, err := port.Write(b[sent:])
			if err != nil {
				t.Fatal(err)
			}
			sent += n
		}
		all, err := port.Deliver(last, time.Minute)
		if err != nil || !all {
			t.Fatal(all, err)
		}
		if err := port.Unplug(); err != nil {
			t.Fatal(err)
		}
		if n := <-got; n != sent+len(last) {
			t.Fatalf("round %d: %d of %d bytes were read", round, n, sent+len(last))
		}
		if err := port.Plug(); err != nil {
			t.Fatal(err)
		}
	}
	if err := port.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(link); !os.IsNotExist(err) {
		t.Errorf("the link is still there: %v", err)
	}
}
