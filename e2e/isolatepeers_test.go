package e2e

import (
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// from connects to addr from an address of this machine.
func from(t *testing.T, ip, addr string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	var conn net.Conn
	testenv.Until(t, time.Minute, "somebody listens at "+addr, func() bool {
		var err error
		conn, err = d.Dial("tcp", addr)
		return err == nil
	})
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// peer is the account of a peer, in a sheet.
func peer(s ledger.Sheet, id string) (p ledger.Port) {
	for _, p := range s.Ports {
		if p.ID == id {
			return p
		}
	}
	return p
}

// TestIsolatedPeers kills recorder and reader while devices send to a source that reads all
// connections. Each has its books, which go on; each frame is stored once, and no connection ends.
// One connects again and again.
func TestIsolatedPeers(t *testing.T) {
	dir := t.TempDir()
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	r := startIsolated(t, dir, fmt.Sprintf("  - {id: net, tcp: {listen: %q, peers: all}, frame: tally128}\n", addr))
	done := make(chan struct{})
	var sending sync.WaitGroup
	end := sync.OnceFunc(func() { close(done); sending.Wait() })
	t.Cleanup(end)
	var devices []*talker
	for i := range 3 {
		ip := fmt.Sprintf("127.0.0.%d", i+2)
		k := &talker{id: "net/" + ip, device: uint32(i + 1)}
		devices = append(devices, k)
		c := from(t, ip, addr)
		if i < 2 {
			sending.Go(func() { k.talk(t, c, 2, done) })
			continue
		}
		sending.Go(func() {
			for {
				if !k.say(t, c, 50) {
					return
				}
				_ = c.Close()
				select {
				case <-done:
					return
				case <-time.After(50 * time.Millisecond): // its pace
				}
				c = from(t, ip, addr)
			}
		})
	}
	r.killAtRandom(t)
	end()
	testenv.Until(t, 2*time.Minute, "all that was sent is stored", func() bool {
		r.find()
		var s ledger.Sheet
		if !r.get("api/v1/sheet", &s) {
			return false
		}
		for _, k := range devices {
			if peer(s, k.id).Frames.Stored < k.made.Load() {
				return false
			}
		}
		return true
	})
	late := &talker{id: "net/127.0.0.9", device: 9} // nobody has looked at it when the recorder stops
	c := from(t, "127.0.0.9", addr)
	late.say(t, c, 100)
	_ = c.Close()
	s := r.stop(t)
	verifyLog(t, dir)
	var made uint64
	for _, k := range append(devices, late) {
		p := peer(s, k.id)
		made += k.made.Load()
		if f := p.Frames; f.Stored != k.made.Load() || f.Missing+f.Duplicate+f.Corrupt > 0 ||
			len(p.Unread)+len(p.Refused) > 0 || p.Bytes.Resync > 0 {
			t.Errorf("%s: %d frames made, %+v, unread %v, refused %v", k.id, k.made.Load(), f, p.Unread, p.Refused)
		}
	}
	if n := storedOnce(t, filepath.Join(dir, "data")); n != made {
		t.Errorf("%d frames are in the log, %d were sent", n, made)
	}
	if hub := peer(s, "net"); hub.State == "" || len(hub.Refused) > 0 || hub.Frames.Stored > 0 {
		t.Errorf("the source itself: %+v", hub)
	}
	t.Logf("%d kills, %d of the reader; %d frames", *isolatedKills, *readerKills, made)
}

// TestIsolatedPeersThatWait has a connection wait that nobody reads yet while the recorder is
// killed: it is not lost, and not read twice.
func TestIsolatedPeersThatWait(t *testing.T) {
	dir := t.TempDir()
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	r := startIsolated(t, dir, fmt.Sprintf("  - {id: net, tcp: {listen: %q, peers: all}, frame: tally128}\n", addr))
	a, b := &talker{id: "net/127.0.0.2", device: 1}, &talker{id: "net/127.0.0.2", device: 2}
	ac := from(t, "127.0.0.2", addr)
	a.say(t, ac, 100)
	stored := func(n uint64) {
		t.Helper()
		testenv.Until(t, time.Minute, fmt.Sprintf("%d frames are stored", n), func() bool {
			r.find()
			var s ledger.Sheet
			var all uint64
			ok := r.get("api/v1/sheet", &s)
			for _, p := range s.Ports { // the second may be read beside the first
				all += p.Frames.Stored
			}
			return ok && all == n
		})
	}
	stored(100)
	bc := from(t, "127.0.0.2", addr) // behind the one that is open
	b.say(t, bc, 100)
	p := r.process(t, isolate.Recorder, 0)
	_ = ac.Close()
	_ = syscall.Kill(p.PID, syscall.SIGKILL)
	r.process(t, isolate.Recorder, p.PID)
	stored(200)
	b.say(t, bc, 100)
	stored(300)
	_ = bc.Close()
	s := r.stop(t)
	if n := storedOnce(t, filepath.Join(dir, "data")); n != 300 {
		t.Errorf("%d frames are in the log: %+v", n, s.Ports)
	}
}

// TestIsolatedPeersThatComeInAStop kills the recorder in the middle of a stop, when its sources
// have been read to their ends. What connects to the one that comes then is recorded all the same.
// That one listens for a moment only: a try in which nobody could connect says nothing.
func TestIsolatedPeersThatComeInAStop(t *testing.T) {
	for range 5 {
		if peerComesInAStop(t) {
			return
		}
	}
	t.Error("nobody could connect before the stop was over, five times")
}

// peerComesInAStop reports whether somebody could connect.
func peerComesInAStop(t *testing.T) bool {
	t.Helper()
	dir := t.TempDir()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the stop waits for it
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	r := startIsolated(t, dir, fmt.Sprintf("  - {id: net, tcp: {listen: %q, peers: all}, frame: tally128}\n"+
		"forward: [{to: nats, name: plant, urls: [\"nats://%s\"]}]\n", addr, silent.Addr()))
	k := &talker{id: "net/127.0.0.2", device: 1}
	c := from(t, "127.0.0.2", addr)
	k.say(t, c, 100)
	testenv.Until(t, time.Minute, "all that was sent is stored", func() bool {
		var s ledger.Sheet
		return r.get("api/v1/sheet", &s) && peer(s, k.id).Frames.Stored == 100
	})
	p := r.process(t, isolate.Recorder, 0)
	if err := r.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil { // until the reader has read it to its end
		t.Fatal("a byte came")
	}
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() { over <- r.Cmd.Wait() }()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}, Timeout: 50 * time.Millisecond}
	for c = nil; c == nil; {
		select {
		case err := <-over:
			if err != nil {
				t.Errorf("run ended with %v; stderr: %s", err, r.Err)
			}
			return false
		case <-time.After(time.Millisecond):
			if conn, err := d.Dial("tcp", addr); err == nil {
				c = conn
			}
		}
	}
	k.say(t, c, 100)
	_ = c.Close()
	if err := <-over; err != nil {
		t.Errorf("run ended with %v; stderr: %s", err, r.Err)
	}
	if n := storedOnce(t, filepath.Join(dir, "data")); n != 200 {
		t.Errorf("%d frames are in the log: %s", n, r.Out)
	}
	return true
}
