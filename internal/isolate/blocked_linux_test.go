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
		return !since.IsZero() && time.Since(since) > 2*spool.Brief
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

// saysNoRoom holds what the spool says of times without room to one, which is over, and returns its
// end.
func (st *stage) saysNoRoom(since, until time.Time) (to int64) {
	st.t.Helper()
	all, _ := st.spool.Unread(0)
	if len(all) != 1 || all[0].Why != spool.NoRoom || all[0].From != since.UnixNano() ||
		all[0].To < all[0].From+int64(until.Sub(since)) {
		st.t.Fatalf("it says %+v, want that there was no room from %d on, for %d at least", all, since.UnixNano(),
			until.Sub(since))
	}
	return all[0].To
}

// TestStopWithoutRoom stops a line that does not read, for its spool is full: the spool says for
// how long.
func TestStopWithoutRoom(t *testing.T) {
	st := newStage(t)
	l, end, since, until := st.blocks(freeAddress(t))
	if all, _ := st.spool.Unread(0); len(all) != 1 || all[0].To != 0 || all[0].From != since.UnixNano() {
		t.Errorf("while it lasts the spool says %+v, want one time from %d on", all, since.UnixNano())
	}
	l.end(time.Now())
	end()
	st.saysNoRoom(since, until)
}

// TestRoomAgain makes room for a line that had none: the spool says for how long, beside its marks,
// and by a mark, where on the wire.
func TestRoomAgain(t *testing.T) {
	st := newStage(t)
	l, end, since, until := st.blocks(freeAddress(t))
	c, err := st.spool.Consumer(0)
	if err != nil {
		t.Fatal(err)
	}
	var marks []spool.Mark
	testenv.Until(t, time.Minute, "there was no room, and where", func() bool {
		for {
			m, view, ok, err := c.Next()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			c.Done(len(view))
			if m.Kind == spool.Unattended {
				marks = append(marks, m)
			}
		}
		for range 2 {
			if err := c.Save(spool.Checkpoint{Point: c.Point()}); err != nil {
				t.Fatal(err)
			}
		}
		_, known := st.spool.Unread(0)
		return known > 0 && len(marks) > 0
	})
	l.end(time.Now())
	end()
	times, _ := st.spool.Unread(0)
	at, m := times[0], marks[0]
	if at.From != since.UnixNano() || at.To < at.From+int64(until.Sub(since)) || at.Why != spool.NoRoom ||
		m.Time != at.From || m.Time+int64(m.B) != at.To || m.A != at.Why {
		t.Errorf("it says %+v, and marks %+v; want that there was no room from %d on, for %d at least", times, marks,
			since.UnixNano(), until.Sub(since))
	}
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
	if to := st.saysNoRoom(since, until); to != died.UnixNano() {
		t.Errorf("it ends at %d, and the reader at %d", to, died.UnixNano())
	}
}
