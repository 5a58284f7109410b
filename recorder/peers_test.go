package recorder

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

// lines is a source that takes text lines over TCP.
func lines(id, peers string) config.Source {
	return config.Source{
		ID: id, TCP: &config.Net{Listen: "127.0.0.1:0", Peers: peers}, Frame: config.Frame{Kind: "line"},
	}
}

// sendLines connects, sends n lines, and closes in order.
func sendLines(t *testing.T, addr string, n int) {
	t.Helper()
	c := dial(t, addr)
	defer c.Close()
	b := make([]byte, 0, n*20)
	for i := range n {
		b = fmt.Appendf(b, "line %d\n", i)
	}
	write(t, c, b)
}

// A device that connects, sends and closes again and again loses nothing that the kernel took: each
// connection is read to its end.
func TestReconnectsLoseNothing(t *testing.T) {
	for _, peers := range []string{config.PeersFirst, config.PeersNewest} {
		for _, strategy := range []string{"ring", "blocking"} {
			g := start(t, t.TempDir(), func(c *config.Config) { c.Read.Strategy = strategy }, lines("a", peers))
			addr := address(g, "a")
			for range 50 {
				sendLines(t, addr, 500)
			}
			stored(t, g, "a", 25_000)
			if f := stop(t, g).Ports[0].Frames; f.OK != 25_000 {
				t.Errorf("peers %q, %s: %d lines, want 25000", peers, strategy, f.OK)
			}
		}
	}
}

// What the kernel has taken when the stop comes is read first: of the connection at hand, and of
// those that wait behind it.
func TestStopReadsWhatWaits(t *testing.T) {
	for _, strategy := range strategies {
		g := start(t, t.TempDir(), func(c *config.Config) { c.Read.Strategy = strategy }, lines("a", config.PeersFirst))
		addr := address(g, "a")
		first := dial(t, addr)
		defer first.Close()
		write(t, first, []byte("here\n"))
		stored(t, g, "a", 1)
		for range 20 {
			sendLines(t, addr, 100)
		}
		p := stop(t, g).Ports[0]
		if p.Frames.OK != 2001 || len(p.Unread) != 0 {
			t.Errorf("%s: %d lines, unread %v; want 2001 and none", strategy, p.Frames.OK, p.Unread)
		}
	}
}

// A sender that never stops is cut at one byte: what its kernel was told had arrived is in the
// books.
func TestStopUnderLoadLosesNothingAcknowledged(t *testing.T) {
	g := start(t, t.TempDir(), nil, lines("a", ""))
	c := dial(t, address(g, "a"))
	defer c.Close()
	sent := make(chan uint64)
	go func() {
		line, n := []byte("a line of thirty-two characters\n"), uint64(0)
		for {
			if _, err := c.Write(line); err != nil {
				sent <- n
				return
			}
			n += uint64(len(line))
		}
	}()
	stored(t, g, "a", 1000)
	p := stop(t, g).Ports[0]
	most, acked := <-sent, acknowledged(t, c)
	if got := p.Bytes.Read + p.Unread[unreadStopped]; got < acked || got > most {
		t.Errorf("%d bytes sent, %d acknowledged, the books name %d: %+v, unread %v", most, acked, got, p.Bytes,
			p.Unread)
	}
}

// With peers: newest, a stranger takes over once the sender is silent; with first, a stranger waits
// for the sender's end.
func TestPeers(t *testing.T) {
	g := start(t, t.TempDir(), nil, lines("first", config.PeersFirst), lines("newest", config.PeersNewest))
	senders, strangers := map[string]net.Conn{}, map[string]net.Conn{}
	for _, id := range []string{"first", "newest"} {
		senders[id] = dial(t, address(g, id))
		defer senders[id].Close()
		write(t, senders[id], []byte("one\n"))
		stored(t, g, id, 1)
	}
	for _, id := range []string{"first", "newest"} {
		strangers[id] = dial(t, address(g, id))
		defer strangers[id].Close()
		write(t, strangers[id], []byte("two\n"))
	}
	stored(t, g, "newest", 2)
	if err := senders["newest"].SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := senders["newest"].Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the older connection reads %v, want the end in order", err)
	}
	if o := portOf(g, "newest").Outages; len(o) != 2 || o[1].Cause != outageReplaced {
		t.Errorf("the change of connections: %+v", o)
	}
	write(t, senders["first"], []byte("three\n"))
	stored(t, g, "first", 2)
	senders["first"].Close()
	stored(t, g, "first", 3)
	stop(t, g)
}

// A source that a reload changes while a newer connection waits for the older one to fall silent is
// taken over all the same.
func TestTakeoverGoesOnBehindAReload(t *testing.T) {
	source := lines("a", config.PeersNewest)
	g := start(t, t.TempDir(), nil, source)
	older := dial(t, address(g, "a"))
	defer older.Close()
	write(t, older, []byte("one\n"))
	stored(t, g, "a", 1)
	newer := dial(t, address(g, "a"))
	defer newer.Close()
	write(t, newer, []byte("two\n"))
	o := g.sources()[0].opener.(*listener)
	testenv.Until(t, time.Minute, "the port knows of the newer one", func() bool {
		return len(o.newer) == 0 && (o.waits() || portOf(g, "a").Frames.Stored == 2)
	})
	source.Frame.Max = 1000
	reloaded(t, g, source)
	write(t, newer, []byte("three\n"))
	stored(t, g, "a", 1) // in its new book
	stop(t, g)
}

// Datagrams that the kernel has taken when the stop comes are read first.
func TestStopReadsDatagramsThatWait(t *testing.T) {
	for _, strategy := range strategies {
		addr := freeUDP(t)
		_, anywhere, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		g := start(t, t.TempDir(), func(c *config.Config) { c.Read.Strategy = strategy },
			config.Source{ID: "u", UDP: &config.Net{Listen: ":" + anywhere}, Frame: config.Frame{Kind: "line"}})
		testenv.Until(t, 10*time.Second, "the socket is open",
			func() bool { return portOf(g, "u").State == ledger.StateOpen })
		c, err := net.Dial("udp", addr)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3000 {
			write(t, c, fmt.Appendf(nil, "datagram %d", i))
		}
		p := stop(t, g).Ports[0]
		c.Close()
		if p.Frames.OK+*p.Kernel.BufferOverrun != 3000 {
			t.Errorf("%s: %d datagrams of 3000, %d over-ran, unread %v", strategy, p.Frames.OK, *p.Kernel.BufferOverrun,
				p.Unread)
		}
	}
}

// acknowledged is how many bytes the peer's kernel has said it has.
func acknowledged(t *testing.T, c net.Conn) (n uint64) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	ctlErr := raw.Control(func(fd uintptr) { n, err = sys.Acknowledged(int(fd)) })
	if err := errors.Join(err, ctlErr); err != nil {
		t.Fatal(err)
	}
	return n
}

// What a line has brought when the stop comes is read first.
func TestStopReadsTheLine(t *testing.T) {
	for _, strategy := range strategies {
		dir := t.TempDir()
		port, err := serialtest.NewPort(filepath.Join(dir, "line"))
		if err != nil {
			t.Fatal(err)
		}
		g := start(t, dir, func(c *config.Config) { c.Read.Strategy = strategy },
			config.Source{ID: "s", Serial: &config.Serial{Port: port.Link}, Frame: config.Frame{Kind: "tally128"}})
		testenv.Until(t, 10*time.Second, "the port is open",
			func() bool { return portOf(g, "s").State == ledger.StateOpen })
		for i := range uint64(30) {
			write(t, port, frames(i, 1))
		}
		if p := stop(t, g).Ports[0]; p.Frames.OK != 30 || len(p.Unread) != 0 {
			t.Errorf("%s: %d frames, unread %v; want 30 and none", strategy, p.Frames.OK, p.Unread)
		}
		port.Close()
	}
}

func freeUDP(t *testing.T) string {
	t.Helper()
	free, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer free.Close()
	return free.LocalAddr().String()
}

// A device that accepts a connection may send, and abort, before connect has returned: what was
// acknowledged is read all the same.
func TestDialledPeersThatAbortLoseNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const connections = 300
	done := make(chan error, 1)
	go func() {
		for n := range connections {
			if err := sendAndAbort(l, fmt.Appendf(nil, "line %d\n", n)); err != nil {
				done <- err
				return
			}
		}
		done <- l.Close()
	}()
	g := start(t, t.TempDir(), nil, config.Source{
		ID: "a", TCP: &config.Net{Dial: l.Addr().String()}, Frame: config.Frame{Kind: "line"},
	})
	if err := <-done; err != nil {
		t.Error(err)
	}
	if f := stop(t, g).Ports[0].Frames; f.OK != connections {
		t.Errorf("%d lines of %d", f.OK, connections)
	}
}

// sendAndAbort takes a connection, and resets it when all of b has been acknowledged.
func sendAndAbort(l net.Listener, b []byte) error {
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write(b); err != nil {
		return err
	}
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	// Acknowledged takes off a SYN, which only those who dial have sent.
	for acked := uint64(0); acked+1 < uint64(len(b)); {
		if err := raw.Control(func(fd uintptr) { acked, _ = sys.Acknowledged(int(fd)) }); err != nil {
			return err
		}
	}
	return c.(*net.TCPConn).SetLinger(0)
}

// An address that is new to the log while the disk has no room for its name: the source is not
// there for it, which is one outage until there is room. Those that the log knows are read
// meanwhile, and the list of outages keeps what it had.
func TestNoRoomForANewAddressIsOneOutage(t *testing.T) {
	dir := t.TempDir()
	g := start(t, dir, nil, all("plant", 8))
	addr := address(g, "plant")
	send := func(n int, from uint64) net.Conn {
		c := dialFrom(t, n, addr)
		write(t, c, of(uint32(n), from, 10))
		return c
	}
	send(1, 0).Close()
	storedInAll(t, g, "plant", 10)
	inTheWay := filepath.Join(dir, "streams.json.part")
	if err := os.Symlink("/dev/full", inTheWay); err != nil {
		t.Fatal(err)
	}
	defer send(2, 0).Close()
	testenv.Until(t, 20*time.Second, "an outage",
		func() bool { return portOf(g, "plant").State == ledger.StateWaiting })
	for i := range uint64(5) { // the hub takes and looks again, several times each
		send(1, 10*(i+1)).Close()
		storedInAll(t, g, "plant", 10*(i+2))
		if p := portOf(g, "plant"); p.OutageCount != 1 || p.Outages[0].To != 0 || p.State != ledger.StateWaiting ||
			p.Why == "" {
			t.Fatalf("an address waits for room: %s, %q, %+v; want one outage that lasts", p.State, p.Why, p.Outages)
		}
	}
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	storedInAll(t, g, "plant", 70)
	testenv.Until(t, 20*time.Second, "the source is there",
		func() bool { return portOf(g, "plant").State == ledger.StateOpen })
	if p := portOf(g, "plant"); p.OutageCount != 1 || p.Outages[0].To == 0 {
		t.Errorf("with room: %+v; want one outage that is over", p.Outages)
	}
	stop(t, g)
}
