package isolate

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/reader"
)

// blocks has a line read from a connection until its spool is full, for a while, and returns since
// when, and for how long at least.
func (st *stage) blocks(addr string) (l *line, end func(), since, until time.Time) {
	st.t.Helper()
	l, end = st.reader(Lane{Kind: Newest, Port: addr})
	st.reads(l)
	if err := l.wire.(*listening).listen(st.t.Context()); err != nil {
		st.t.Fatal(err)
	}
	go l.run(nothingLeft)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		st.t.Fatal(err)
	}
	st.t.Cleanup(func() { _ = c.Close() })
	go func() { _, _ = c.Write(bytes.Repeat([]byte("x"), 4*st.spool.Size())) }() // until that is closed
	testenv.Until(st.t, time.Minute, "there is no room for long", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		since = l.stuck
		return !since.IsZero() && time.Since(since) > 2*stuckLong
	})
	return l, end, since, time.Now()
}

// reads gives a line what it reads with.
func (st *stage) reads(l *line) {
	st.t.Helper()
	r, err := reader.New(reader.Config{Strategy: reader.Blocking})
	if err != nil {
		st.t.Fatal(err)
	}
	st.t.Cleanup(func() { _ = r.Close() })
	l.read = r
}

// unattended is what the spool says of times in which nobody read, before the line's end.
func (st *stage) unattended() (all []spool.Mark) {
	st.t.Helper()
	c, err := st.spool.Consumer(0)
	if err != nil {
		st.t.Fatal(err)
	}
	for {
		m, _, ok, err := c.Next()
		if err != nil {
			st.t.Fatal(err)
		}
		switch {
		case !ok:
			st.t.Error("the spool does not say that the line has ended")
			return all
		case m.Kind == spool.Unattended:
			all = append(all, m)
		case m.Kind == spool.Ended:
			return all
		}
	}
}

// saysNoRoom holds a mark to a time in which there was no room.
func saysNoRoom(t *testing.T, m spool.Mark, since, until time.Time) {
	t.Helper()
	if m.A != spool.NoRoom || m.Time != since.UnixNano() || m.B < uint64(until.Sub(since)) {
		t.Errorf("it says %+v, want that there was no room from %d on, for %d at least", m, since.UnixNano(),
			until.Sub(since))
	}
}

// TestStopWithoutRoom stops a line that does not read, for its spool is full: the spool says for
// how long.
func TestStopWithoutRoom(t *testing.T) {
	st := newStage(t)
	l, end, since, until := st.blocks(freeAddress(t))
	l.end(time.Now())
	end()
	all := st.unattended()
	if len(all) != 1 {
		t.Fatalf("the spool says %+v, want one time without room", all)
	}
	saysNoRoom(t, all[0], since, until)
}

// TestReaderEndsWithoutRoom has a reader end that does not read, for its spool is full, and another
// one go on: the spool says for how long it was full, and then, that nobody read.
func TestReaderEndsWithoutRoom(t *testing.T) {
	st := newStage(t)
	addr := freeAddress(t)
	l, end, since, until := st.blocks(addr)
	l.leave(time.Now())
	end()
	died := time.Now()
	l, before, end := st.successor(Lane{Kind: Newest, Port: addr})
	if before.fd < 0 {
		t.Fatal("the connection is not on the shelf")
	}
	st.reads(l)
	l.link.died = died.UnixNano()
	go l.run(before)
	l.end(time.Now())
	end()
	all := st.unattended()
	if len(all) != 2 || all[1].A != spool.Killed || all[1].Time != died.UnixNano() {
		t.Fatalf("the spool says %+v, want a time without room, and one without a reader", all)
	}
	saysNoRoom(t, all[0], since, until)
	if end := all[0].Time + int64(all[0].B); end != all[1].Time {
		t.Errorf("the first ends at %d, and the second begins at %d", end, all[1].Time)
	}
}
