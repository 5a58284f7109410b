package isolate

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/reader"
)

// TestSourceBeginsAnew drops a source that is read, and one that waits, and puts it again, as a
// recorder does that cannot go on with what one before it has left: the old line asks the keeper
// for nothing, closes what it had, and the new one takes the next connection at once.
func TestSourceBeginsAnew(t *testing.T) {
	st := newStage(t)
	ours, conn := linkPair(t)
	c := &child{Process: Process{Role: Reader}, conn: ours, heard: make(chan struct{})}
	st.k.children[Reader] = c
	go st.k.listen(c, ours)
	read, err := reader.New(reader.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var journal bytes.Buffer // is read once the link has ended
	r := &ports{
		link: newLink(conn), log: slog.New(slog.NewTextHandler(&journal, nil)), bell: st.bell, read: read,
		lines: map[string]*line{}, ends: map[string]*line{}, known: map[string]adoption{},
	}
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		_, _ = r.link.Follow(r.entry, func([]Process) {})
	}()

	recorder := &child{Process: Process{Role: Recorder}}
	says := func(m message, fds ...int) {
		st.k.mu.Lock()
		defer st.k.mu.Unlock()
		if _, err := st.k.hear(recorder, m, fds, false); err != nil {
			t.Error(err)
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	_ = free.Close()
	lane, err := json.Marshal(Lane{Kind: Newest, Port: addr})
	if err != nil {
		t.Fatal(err)
	}
	begin := func() {
		s, err := spool.Create(spool.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		fd, err := sys.Dup(int(s.File().Fd()))
		if err != nil {
			t.Fatal(err)
		}
		says(message{Op: opPut, Name: LaneOf("x"), Data: lane}, fd)
	}
	dial := func() (c net.Conn) {
		testenv.Until(t, time.Minute, "somebody listens", func() bool {
			c, err = net.Dial("tcp", addr)
			return err == nil
		})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	begin()
	for range 5 {
		first := dial()
		st.has("lane/x", "listener/x", "port/x")
		second := dial()
		st.has("lane/x", "listener/x", "next/x", "port/x")
		for _, name := range Of("x") {
			says(message{Op: opDrop, Name: name})
		}
		begin()
		for _, c := range []net.Conn{first, second} {
			_ = c.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := c.Read(make([]byte, 1)); err == nil || isTimeout(err) {
				t.Fatalf("a connection of the old line: %v", err)
			}
		}
	}
	_ = dial()
	st.has("lane/x", "listener/x", "port/x")
	_ = conn.Close() // whatever the line has asked for meanwhile: the keeper has ended
	<-c.heard
	<-followed
	asked := time.Now()
	for _, l := range r.lines {
		l.end(asked)
	}
	if d := time.Since(asked); d >= settlesIn {
		t.Errorf("a line waits %v for a keeper that has ended", d)
	}
	_ = ours.Close()
	_ = read.Close()
	if bytes.Contains(journal.Bytes(), []byte("does not answer")) {
		t.Errorf("the journal:\n%s", &journal)
	}
}

// TestAnswersOfTwoLines has the keeper answer while a line ends, and the next one of its source is
// there: the answer is for the one that has asked.
func TestAnswersOfTwoLines(t *testing.T) {
	old, next := &line{done: make(chan struct{})}, &line{done: make(chan struct{})}
	r := &ports{lines: map[string]*line{}, ends: map[string]*line{"x": old}}
	if l := r.asks("x"); l != old {
		t.Error("not the line that ends")
	}
	next.before = old
	r.lines["x"] = next
	delete(r.ends, "x")
	if l := r.asks("x"); l != old {
		t.Error("the next line, and the one before has not ended")
	}
	close(old.done)
	if l := r.asks("x"); l != next {
		t.Error("not the line that reads")
	}
	if l := r.asks("y"); l != nil {
		t.Error("a line of another source")
	}
}

// TestAnswerThatIsLate has the keeper answer behind the time in which it should have: it brings the
// only connection there is.
func TestAnswerThatIsLate(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fd, err := sys.SocketOf(l.(*net.TCPListener))
	if err != nil {
		t.Fatal(err)
	}
	offered := make(chan Arrival, 1)
	a := Acceptor{
		Log: slog.New(slog.DiscardHandler), Link: newLink(nil), Offer: func(a Arrival) { offered <- a },
		asked: true,
	}
	a.Begin(fd, false)
	conn, err := sys.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	a.Heard(Entry{Name: NextOf("x"), FDs: []int{conn}, Answer: true})
	select {
	case got := <-offered:
		if got.FD != conn {
			t.Errorf("another connection: %d", got.FD)
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits for one more")
	}
	_ = sys.CloseFD(conn)
	a.Leave()
	a.socket.close()
}

func isTimeout(err error) bool {
	timeout, ok := err.(net.Error)
	return ok && timeout.Timeout()
}
