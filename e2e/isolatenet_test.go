package e2e

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// talker is a device on the network that sends numbered frames. It keeps its own truth.
type talker struct {
	id     string
	device uint32
	made   atomic.Uint64 // frames
	next   uint64
	calls  sync.Mutex // held by the one connection of a device that has one at a time
}

// say sends frames over a connection, each with a write of its own.
func (k *talker) say(t *testing.T, conn net.Conn, frames int) (ok bool) {
	f := make([]byte, tally128.Size)
	for range frames {
		tally128.Encode(f, tally128.Header{Device: k.device, Epoch: 1, Seq: k.next}, []byte(k.id))
		if _, err := conn.Write(f); err != nil {
			t.Errorf("%s, frame %d: %v", k.id, k.next, err)
			return false
		}
		k.next++
		k.made.Add(1)
	}
	return true
}

// talk sends until done is closed, so many frames each millisecond.
func (k *talker) talk(t *testing.T, conn net.Conn, frames int, done <-chan struct{}) {
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	for {
		select {
		case <-done:
			return
		case <-pace.C:
			if !k.say(t, conn, frames) {
				return
			}
		}
	}
}

// reach connects to a recorder that may not listen yet.
func reach(t *testing.T, addr string) net.Conn {
	t.Helper()
	var conn net.Conn
	testenv.Until(t, time.Minute, "somebody listens at "+addr, func() bool {
		var err error
		conn, err = net.Dial("tcp", addr)
		return err == nil
	})
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// network is a device of each kind: one sends datagrams, one is dialled, two connect. Each TCP
// device has one connection for its life.
type network struct {
	talkers []*talker
	begin   func() // once the recorder runs
	stop    func()
}

func newNetwork(t *testing.T) (n network, sources string) {
	t.Helper()
	done := make(chan struct{})
	var sending sync.WaitGroup
	udp, first, newest := fmt.Sprintf("127.0.0.1:%d", freePort(t)), fmt.Sprintf("127.0.0.1:%d", freePort(t)),
		fmt.Sprintf("127.0.0.1:%d", freePort(t))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range []string{"udp", "dial", "first", "newest"} {
		n.talkers = append(n.talkers, &talker{id: id, device: uint32(i + 1)})
	}
	sources = fmt.Sprintf(`  - {id: udp, udp: {listen: %q}, frame: tally128}
  - {id: dial, tcp: {dial: %q}, frame: tally128}
  - {id: first, tcp: {listen: %q, peers: first}, frame: tally128}
  - {id: newest, tcp: {listen: %q}, frame: tally128}
`, udp, l.Addr(), first, newest)
	n.begin = func() {
		conn, err := net.Dial("udp", udp)
		if err != nil {
			t.Fatal(err)
		}
		var conns []net.Conn
		for _, addr := range []string{first, newest} {
			conns = append(conns, reach(t, addr))
		}
		sending.Go(func() { defer conn.Close(); n.talkers[0].talk(t, conn, 1, done) })
		for i, c := range conns {
			sending.Go(func() { n.talkers[2+i].talk(t, c, 3, done) })
		}
		sending.Go(func() {
			c, err := l.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { _ = c.Close() })
			n.talkers[1].talk(t, c, 3, done)
		})
	}
	n.stop = sync.OnceFunc(func() { close(done); sending.Wait() })
	t.Cleanup(func() { n.stop(); _ = l.Close() })
	return n, sources
}

// drain ends the sending, and waits until the recorder has stored all.
func (n network) drain(t *testing.T, r *recorder) {
	t.Helper()
	n.stop()
	testenv.Until(t, 2*time.Minute, "all that was sent is stored", func() bool {
		r.find()
		var s ledger.Sheet
		if !r.get("api/v1/sheet", &s) {
			return false
		}
		for i, k := range n.talkers {
			if s.Ports[i].Frames.Stored+dropped(s.Ports[i]) < k.made.Load() {
				return false
			}
		}
		return true
	})
}

// dropped is how many datagrams the kernel had no room for.
func dropped(p ledger.Port) uint64 {
	if p.Kernel == nil || p.Kernel.BufferOverrun == nil {
		return 0
	}
	return *p.Kernel.BufferOverrun
}

// judge holds the last sheet, and the log, to what was sent.
func (n network) judge(t *testing.T, dir string, s ledger.Sheet) {
	t.Helper()
	verifyLog(t, dir)
	var stored uint64
	for i, k := range n.talkers {
		p := s.Ports[i]
		stored += p.Frames.Stored
		if f := p.Frames; f.Stored+dropped(p) != k.made.Load() || f.Missing > dropped(p) || f.Duplicate+f.Corrupt > 0 ||
			len(p.Unread) > 0 ||
			k.id != "udp" && dropped(p) > 0 {
			t.Errorf("%s: %d frames made, %+v, %d dropped by the kernel; unread %v", k.id, k.made.Load(), f, dropped(p),
				p.Unread)
		}
		for _, o := range p.Outages {
			if !strings.Contains(o.Cause, "was restarted") && o.Cause != "not connected" &&
				!strings.HasPrefix(o.Cause, "connecting to ") {
				t.Errorf("%s: an outage of %q", k.id, o.Cause)
			}
		}
	}
	if n := storedOnce(t, filepath.Join(dir, "data")); n != stored {
		t.Errorf("%d frames are in the log, the books have %d", n, stored)
	}
}

// TestIsolatedNetwork kills recorder and reader under load from the network. Each frame is stored
// once, and no connection ends; what the kernel dropped of datagrams while nobody read, it counts.
func TestIsolatedNetwork(t *testing.T) {
	dir := t.TempDir()
	n, sources := newNetwork(t)
	r := startIsolated(t, dir, sources)
	n.begin()
	r.killAtRandom(t)
	n.drain(t, r)
	s := r.stop(t)
	n.judge(t, dir, s)
	t.Logf("%d kills, %d of the reader; the kernel dropped %d of %d datagrams", *isolatedKills, *readerKills,
		dropped(s.Ports[0]), n.talkers[0].made.Load())
}

// TestIsolatedNetworkUpgrades replaces recorder and reader under load from the network.
func TestIsolatedNetworkUpgrades(t *testing.T) {
	dir := t.TempDir()
	n, sources := newNetwork(t)
	u := startUpgrading(t, dir, sources)
	n.begin()
	for range 2 {
		u.upgradeToItself(t)
	}
	for _, c := range []struct {
		from, to string
		role     isolate.Role
	}{
		{"segment: 4MiB", "segment: 2MiB", isolate.Recorder},
		{"sources:", "read: {mode: throughput}\nsources:", isolate.Reader},
	} {
		u.reload(t, c.from, c.to, c.role)
	}
	n.drain(t, u.recorder)
	s := u.stop(t)
	n.judge(t, dir, s)
	if p := u.recorder; strings.Contains(p.Err.String(), "has ended, and is started again") {
		t.Error("a process has crashed")
	}
}

// TestIsolatedConnections has several devices connect, one behind the other and at once, while the
// reader is killed. What each has sent is stored, also of those that nobody has read when the
// recorder stops.
func TestIsolatedConnections(t *testing.T) {
	for _, peers := range []string{"first", "newest"} {
		t.Run(peers, func(t *testing.T) {
			dir := t.TempDir()
			addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
			r := startIsolated(t, dir,
				fmt.Sprintf("  - {id: net, tcp: {listen: %q, peers: %s}, frame: tally128}\n", addr, peers))
			var devices []*talker
			var sent uint64
			connect := func() (*talker, net.Conn) {
				k := &talker{id: fmt.Sprint("device ", len(devices)), device: uint32(len(devices) + 1)}
				devices = append(devices, k)
				return k, reach(t, addr)
			}
			say := func(k *talker, c net.Conn) { t.Helper(); k.say(t, c, 100); sent += 100 }
			stored := func() {
				t.Helper()
				testenv.Until(t, time.Minute, fmt.Sprintf("%d frames are stored", sent), func() bool {
					r.find()
					var s ledger.Sheet
					return r.get("api/v1/sheet", &s) && s.Ports[0].Frames.Stored == sent
				})
			}
			kill := func(role isolate.Role) {
				p := r.process(t, role, 0)
				_ = syscall.Kill(p.PID, syscall.SIGKILL)
				r.process(t, role, p.PID)
			}
			a, ac := connect()
			say(a, ac)
			stored()
			b, bc := connect()
			before := sent
			say(b, bc) // its connection waits, and is taken over by another reader
			kill(isolate.Reader)
			if peers == "first" {
				sent = before
				say(a, ac)
				stored()
				_ = ac.Close()
				sent += 100
			}
			stored()
			kill(isolate.Recorder)
			say(b, bc)
			stored()
			for range 3 { // one waits in the reader, others in the kernel
				k, c := connect()
				say(k, c)
				_ = c.Close()
			}
			kill(isolate.Reader)
			s := r.stop(t)
			if p := s.Ports[0]; p.Frames.Stored != sent || p.Frames.Missing+p.Frames.Duplicate+p.Frames.Corrupt > 0 ||
				len(p.Unread)+len(p.Refused) > 0 ||
				p.Bytes.Resync > 0 {
				t.Errorf("%d frames were sent: %+v, bytes %+v; unread %v, refused %v", sent, p.Frames, p.Bytes,
					p.Unread, p.Refused)
			}
			if n := storedOnce(t, filepath.Join(dir, "data")); n != sent {
				t.Errorf("%d frames are in the log, %d were sent", n, sent)
			}
			if peers == "newest" &&
				!slices.ContainsFunc(s.Ports[0].Outages,
					func(o ledger.Outage) bool { return o.Cause == "a newer connection took over" }) {
				t.Errorf("no newer connection took over: %+v", s.Ports[0].Outages)
			}
		})
	}
}

// TestIsolatedAddressIsTaken has a source wait for an address that another program has, and for one
// that is dialled and does not listen.
func TestIsolatedAddressIsTaken(t *testing.T) {
	dir := t.TempDir()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dialled := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	r := startIsolated(t, dir,
		fmt.Sprintf("  - {id: a, tcp: {listen: %q}, frame: tally128}\n  - {id: b, tcp: {dial: %q}, frame: tally128}\n",
			taken.Addr(), dialled))
	why := func(texts ...string) func() bool {
		return func() bool {
			s := r.sheet(t)
			return slices.EqualFunc(s.Ports, texts,
				func(p ledger.Port, text string) bool { return strings.Contains(p.Why, text) })
		}
	}
	testenv.Until(t, time.Minute, "both say why", why("address already in use", "connection refused"))
	_ = taken.Close()
	l, err := net.Listen("tcp", dialled)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	testenv.Until(t, time.Minute, "the address is had, and the device is there", func() bool {
		s := r.sheet(t)
		return s.Ports[0].Why == "not connected" && s.Ports[1].State == ledger.StateOpen
	})
	r.stop(t)
}
