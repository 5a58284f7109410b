package isolate

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/sockets"
	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ipc"
	"github.com/tallywheel/tallywheel/serial"
)

// stage is a keeper without processes, and readers that follow each other.
type stage struct {
	t     *testing.T
	k     *keeper
	spool *spool.Spool
	bell  *Bell
}

func newStage(t *testing.T) *stage {
	s, err := spool.Create(spool.Config{})
	if err != nil {
		t.Skipf("SKIPPED: no memory that can be sealed: %v; run this on Linux 3.17 or later, where memfd_create is allowed", err)
	}
	bell, err := NewBell()
	if err != nil {
		t.Fatal(err)
	}
	st := &stage{t, newKeeper(Keeping{Log: slog.New(slog.DiscardHandler)}), s, bell}
	t.Cleanup(func() {
		_ = s.Close()
		for _, e := range st.k.shelf {
			Entry{FDs: e.fds}.CloseFDs()
		}
	})
	return st
}

// reader is the line of a reader that finds what the one before has left. end ends it as a kill
// does: what it has in its hands is not given to anybody.
func (st *stage) reader(lane Lane) (l *line, end func()) {
	st.t.Helper()
	l, _, end = st.successor(lane)
	return l, end
}

// successor is reader, with what the one before has left.
func (st *stage) successor(lane Lane) (l *line, before adoption, end func()) {
	st.t.Helper()
	ours, theirs, err := ipc.Pair(linkConfig)
	if err != nil {
		st.t.Fatal(err)
	}
	conn, err := ipc.Inherit(theirs, linkConfig)
	if err != nil {
		st.t.Fatal(err)
	}
	c := &child{Process: Process{Role: Reader}, conn: ours, heard: make(chan struct{})}
	st.k.children[Reader] = c
	go st.k.listen(c, ours)
	r := &ports{
		link: newLink(conn), log: slog.New(slog.DiscardHandler), bell: st.bell, lines: map[string]*line{},
		known: map[string]adoption{},
	}
	st.k.mu.Lock()
	for _, e := range st.k.shelf {
		kept := Entry{Name: e.name, Data: e.data}
		for _, fd := range e.fds {
			dup, err := sys.Dup(fd)
			if err != nil {
				st.t.Error(err)
			}
			kept.FDs = append(kept.FDs, dup)
		}
		kind, source := SourceOf(e.name)
		r.know(kind, source, kept)
	}
	st.k.mu.Unlock()
	before = r.left("x")
	if l, err = r.newLine("x", lane, st.spool, before); err != nil {
		st.t.Fatal(err)
	}
	l.wire = l.newWire(before)
	r.lines["x"] = l
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		_, _ = r.link.Follow(r.entry, func([]Process) {})
	}()
	return l, before, func() {
		l.wire.leave()
		_ = conn.Close()
		<-c.heard
		_ = ours.Close()
		<-followed
	}
}

// has waits until those are the entries on the shelf.
func (st *stage) has(names ...string) {
	st.t.Helper()
	testenv.Until(st.t, time.Minute, "the shelf has what it should", func() bool {
		st.k.mu.Lock()
		defer st.k.mu.Unlock()
		var all []string
		for _, e := range st.k.shelf {
			all = append(all, e.name)
		}
		slices.Sort(all)
		return slices.Equal(all, names)
	})
}

func (st *stage) open(l *line) device {
	st.t.Helper()
	ctx, cancel := context.WithTimeout(st.t.Context(), time.Minute)
	defer cancel()
	d, err := l.wire.open(ctx)
	if err != nil {
		st.t.Fatal(err)
	}
	return d
}

// brings reads what a device has to bring.
func (st *stage) brings(d device, want string) {
	st.t.Helper()
	b, got := make([]byte, 100), ""
	testenv.Until(st.t, time.Minute, "it brings "+want, func() bool {
		n, _ := sys.Receive(d.FD(), b)
		got += string(b[:n])
		return got == want
	})
}

// call connects, and sends.
func (st *stage) call(addr, text string) {
	st.t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		st.t.Fatal(err)
	}
	st.t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Write([]byte(text)); err != nil {
		st.t.Fatal(err)
	}
}

// freeAddress is one at which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer free.Close()
	return free.Addr().String()
}

// TestListeningGoesOn kills readers between the steps by which a connection becomes a device: each
// connection is read once, and none ends.
func TestListeningGoesOn(t *testing.T) {
	st := newStage(t)
	addr := freeAddress(t)
	lane := Lane{Kind: Newest, Port: addr}

	l, end := st.reader(lane)
	if err := l.wire.(*listening).listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	st.call(addr, "one")
	d := st.open(l)
	st.has("listener/x", "next/x")
	_ = d.Close()
	end() // the device was not given to the keeper

	l, end = st.reader(lane)
	st.call(addr, "two")
	d = st.open(l)
	st.brings(d, "one")
	if err := l.link.Put(PortOf("x"), d.about(), d.FD()); err != nil {
		t.Fatal(err)
	}
	st.has("listener/x", "next/x", "port/x")
	_ = d.Close()
	end() // it is there twice

	l, end = st.reader(lane)
	st.has("listener/x", "next/x", "port/x") // the second one, which was accepted meanwhile
	testenv.Until(t, time.Minute, "the second one waits", l.wire.(*listening).waits)
	select {
	case <-l.wire.newer():
	default:
		t.Error("nothing says that a newer one waits")
	}
	d = st.open(l)
	if err := l.keep(d); err != nil {
		t.Fatal(err)
	}
	st.has("listener/x", "port/x")
	st.brings(d, "two")
	st.call(addr, "three")
	testenv.Until(t, time.Minute, "the third one waits", l.wire.(*listening).waits)
	st.call(addr, "four")
	for _, want := range []string{"three", "four"} { // the line ends
		d := l.wire.rest()
		if d == nil {
			t.Fatalf("nothing waits, and %s does", want)
		}
		if err := l.keep(d); err != nil {
			t.Fatal(err)
		}
		st.brings(d, want)
		_ = d.Close()
	}
	if d := l.wire.rest(); d != nil {
		t.Error("one more waits")
	}
	l.wire.close()
	st.has("port/x")
	_ = d.Close()
	end()
}

// TestLateConnectionsAreCounted ends a line whose spool is full when many connections wait that
// nobody has time to read: what they hold is in the spool, and that the line has ended.
func TestLateConnectionsAreCounted(t *testing.T) {
	st := newStage(t)
	addr := freeAddress(t)
	l, end := st.reader(Lane{Kind: Newest, Port: addr})
	if err := l.wire.(*listening).listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	for l.producer.Note(spool.Mark{Kind: spool.Silent}) == nil { // until there is no room
	}
	want := uint64(0)
	for _, text := range []string{"one", "two", "three", "four", "five", "six", "seven"} {
		st.call(addr, text)
		want += uint64(len(text))
	}
	l.giveUp = time.Now()
	l.stop()
	l.run(nothingLeft)
	end()
	c, err := st.spool.Consumer(0)
	if err != nil {
		t.Fatal(err)
	}
	lost, ended := uint64(0), false
	for {
		m, _, ok, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		if m.Kind == spool.Lost && m.A == spool.Discarded {
			lost += m.B
		}
		ended = m.Kind == spool.Ended
	}
	if lost != want || !ended {
		t.Errorf("the spool tells of %d bytes that nobody read, want %d; that the line has ended: %v", lost, want,
			ended)
	}
}

// TestDialledGoesOn kills a reader behind a connection that the keeper does not know as a device
// yet: the next one reads that.
func TestDialledGoesOn(t *testing.T) {
	st := newStage(t)
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	lane := Lane{Kind: Dialled, Port: server.Addr().String()}
	l, end := st.reader(lane)
	_ = st.open(l).Close()
	conn, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("one")); err != nil {
		t.Fatal(err)
	}
	st.has("next/x")
	end()

	l, end = st.reader(lane)
	d := st.open(l)
	st.brings(d, "one")
	if err := l.keep(d); err != nil {
		t.Fatal(err)
	}
	st.has("port/x")
	_ = d.Close()
	end()

	l, end = st.reader(lane)
	left := l.wire.(*dialled).next
	if left >= 0 {
		t.Error("a socket is left")
	}
	l.wire.close()
	end()
}

// What a line holds and is counted is taken, too: a pty that somebody else has open would keep it
// for the next reader.
func TestWhatALineHoldsIsDiscardedOnce(t *testing.T) {
	master, path, err := sys.OpenPTY()
	if err != nil {
		t.Skipf("SKIPPED: no pty: %v; mount devpts at /dev/pts", err)
	}
	defer func() { _ = sys.CloseFD(master) }()
	held, err := sys.OpenTTY(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sys.CloseFD(held) }()
	p, err := serial.Open(path, serial.Config{Baud: 115200})
	if err != nil {
		t.Fatal(err)
	}
	text := bytes.Repeat([]byte{'x'}, 3000)
	if n, err := sys.Write(master, text); n != len(text) || err != nil {
		t.Fatal(n, err)
	}
	d := &ttyDevice{p, ""}
	testenv.Until(t, time.Minute, "all is there", func() bool { return sockets.Waiting(d.FD()) == uint64(len(text)) })
	if n := d.discard(); n != uint64(len(text)) {
		t.Errorf("%d bytes are counted, want %d", n, len(text))
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if n := sockets.Waiting(held); n > 0 {
		t.Errorf("the next reader finds %d bytes that were counted", n)
	}
}

// counting is a device whose driver has counted so much.
type counting struct {
	device
	n uint64
}

func (c *counting) counts() []count { return []count{{0, c.n}} }

// TestCountWakesForNewsOnly: a look at counters that say what they said wakes nobody, as there is
// one each second for each line.
func TestCountWakesForNewsOnly(t *testing.T) {
	st := newStage(t)
	l, end := st.reader(Lane{Kind: Serial})
	defer end()
	d := &counting{n: 1}
	rings := func() bool {
		st.bell.word.Store(asleep)
		l.count(d)
		return st.bell.word.Swap(0) == 0
	}
	if !rings() {
		t.Error("a first count wakes nobody")
	}
	if rings() {
		t.Error("a count that has not changed wakes")
	}
	if d.n++; !rings() {
		t.Error("a count that has changed wakes nobody")
	}
}
