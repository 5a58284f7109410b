package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// flood sends lines over a connection until nobody has taken any for a second. It returns how many
// bytes the connection has taken.
func flood(t *testing.T, c net.Conn) (taken uint64) {
	t.Helper()
	lines := bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), 1000)
	for {
		if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := c.Write(lines)
		taken += uint64(n)
		if lines = append(lines[n:], lines[:n]...); errors.Is(err, os.ErrDeadlineExceeded) {
			return taken
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// unacknowledged is how many bytes of what a connection has taken the other side's kernel has not.
func unacknowledged(t *testing.T, c net.Conn) uint64 {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if e := raw.Control(func(fd uintptr) { n, err = sys.Unsent(int(fd)) }); e != nil || err != nil {
		t.Fatal(e, err)
	}
	return uint64(n)
}

// TestSystemdStopOfAFullConnection stops a service whose log has taken nothing for so long that the
// kernel's buffers are full of what a connection has sent. Where the log has room again, that is
// read first. Where it has none, the next start's history has what nobody has read.
func TestSystemdStopOfAFullConnection(t *testing.T) {
	for name, c := range map[string]struct {
		room  bool
		peers string
	}{"room": {true, "first"}, "full": {false, "first"}, "full of all": {false, "all"}} {
		t.Run(name, func(t *testing.T) {
			room := c.room
			dir, data, _, _ := twoDisks(t)
			addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
			s := startService(t, dir, fmt.Sprintf("  - {id: net, tcp: {listen: %q, peers: %s}, frame: line}\n", addr,
				c.peers), "")
			others := filepath.Join(data, "others")
			if err := os.WriteFile(others, make([]byte, 44<<20), 0o600); err != nil {
				t.Fatal(err)
			}
			c := from(t, "127.0.0.2", addr)
			taken := flood(t, c)
			keeper := s.listens(t, 0)
			if room {
				if err := os.Remove(others); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			s.systemctl(t, "stop", s.unit)
			took, sent := time.Since(began), taken-unacknowledged(t, c)
			if !room {
				if err := os.Remove(others); err != nil {
					t.Fatal(err)
				}
			}
			s.systemctl(t, "start", s.unit)
			s.listens(t, keeper)
			testenv.Until(t, time.Minute, "the history has the start before",
				func() bool { return allBooks(t, data).read > 0 })
			b := allBooks(t, data)
			t.Logf("the stop took %v; of %d bytes %d were read, and %d not", took, sent, b.read, b.unread)
			if b.read+b.unread != sent {
				t.Errorf("%d bytes were acknowledged, %d are in the books; the journal:\n%s", sent, b.read+b.unread, s.journal())
			}
			if room && b.unread > 64<<10 {
				t.Errorf("%d bytes were left", b.unread)
			}
		})
	}
}
