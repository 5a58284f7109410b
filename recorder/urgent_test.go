package recorder

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// writeUrgent sends the last byte as urgent, as Telnet does before a break.
func writeUrgent(t *testing.T, c net.Conn, b []byte) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var sent error
	if err := raw.Control(func(fd uintptr) { sent = syscall.Sendto(int(fd), b, syscall.MSG_OOB, nil) }); err != nil ||
		sent != nil {
		t.Fatal(err, sent)
	}
}

// A byte that is sent as urgent is one of the stream, and what follows it is read at once: whether
// the device connects, or is dialled, and whichever strategy reads.
func TestUrgentBytesAreRead(t *testing.T) {
	for _, strategy := range strategies {
		device, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer device.Close()
		dialled := config.Source{
			ID: "dial", TCP: &config.Net{Dial: device.Addr().String()}, Frame: config.Frame{Kind: "tally128"},
		}
		g := start(t, t.TempDir(), func(c *config.Config) { c.Read.Strategy = strategy }, tcp("listen"), all("all", 4),
			dialled)
		answering, err := device.Accept()
		if err != nil {
			t.Fatal(err)
		}
		for id, c := range map[string]net.Conn{
			"listen": dial(t, address(g, "listen")), "all/127.0.0.9": dialFrom(t, 9, address(g, "all")),
			"dial": answering,
		} {
			const rounds = 20
			for i := range uint64(rounds) {
				b := frames(4*i, 4)
				cut := 1 + int(i)*25
				writeUrgent(t, c, b[:cut])
				write(t, c, b[cut:])
				stored(t, g, id, 4*(i+1))
			}
			b := frames(4*rounds, 4) // all at once, when the reader comes to it
			write(t, c, b[:100])
			writeUrgent(t, c, b[100:200])
			writeUrgent(t, c, b[200:201])
			write(t, c, b[201:])
			stored(t, g, id, 4*rounds+4)
			c.Close()
		}
		if s := stop(t, g); s.Verdict.LostWire.Frames+s.Verdict.Damaged.Frames > 0 {
			t.Errorf("%s: %s", strategy, s.Verdict.Text)
		}
	}
}

// What waits behind an urgent byte is read by a stop, and counted where it is refused.
func TestUrgentBytesAreCounted(t *testing.T) {
	g := start(t, t.TempDir(), nil, all("a", 1))
	first := dialFrom(t, 2, address(g, "a"))
	defer first.Close()
	write(t, first, of(2, 0, 1))
	stored(t, g, peer("a", 2), 1)
	second := dialFrom(t, 3, address(g, "a"))
	defer second.Close()
	b := of(3, 0, 8)
	writeUrgent(t, second, b[:100])
	write(t, second, b[100:])
	refused(t, g, "a", uint64(len(b)))
	writeUrgent(t, first, of(2, 1, 1))
	s := stop(t, g)
	if f, read, unread := total(t, s, "a"); f.OK != 2 || read != 256 || unread != uint64(len(b)) {
		t.Errorf("%d frames, %d bytes read, %d unread", f.OK, read, unread)
	}
}

func refused(t *testing.T, g *Recorder, id string, n uint64) {
	t.Helper()
	testenv.Until(t, 20*time.Second, "what is refused is counted", func() bool {
		return portOf(g, id).Unread[unreadRefused] > 0
	})
	if got := portOf(g, id).Unread[unreadRefused]; got != n {
		t.Errorf("%d bytes are refused, want %d", got, n)
	}
}
