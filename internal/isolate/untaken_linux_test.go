package isolate

import (
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/reader"
)

// full is a reader that takes no device.
type full struct{ reader.Reader }

func (full) Add(reader.Port) (reader.Handle, error) { return nil, syscall.ENOSPC }

// What a device holds that the reader cannot take was acknowledged to who sent it: it is counted
// before the device is closed.
func TestDevicesThatTheReaderCannotTake(t *testing.T) {
	st := newStage(t)
	addr := freeAddress(t)
	l, end := st.reader(Lane{Kind: First, Port: addr})
	l.read = full{}
	if err := l.wire.(*listening).listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := uint64(0)
	for _, text := range []string{"one", "and two", "and number three"} {
		st.call(addr, text)
		want += uint64(len(text))
	}
	go l.run(nothingLeft)
	c, err := st.spool.Consumer(0)
	if err != nil {
		t.Fatal(err)
	}
	lost, closed := uint64(0), 0
	testenv.Until(t, time.Minute, "all that was sent is counted", func() bool {
		for {
			m, _, ok, err := c.Next()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				return lost >= want && closed == 3
			}
			switch m.Kind {
			case spool.Lost:
				if lost += m.B; m.A != spool.Untaken {
					t.Errorf("the cause is %d", m.A)
				}
			case spool.Closed:
				if closed++; m.A != uint32(syscall.ENOSPC) {
					t.Errorf("closed by %d", m.A)
				}
			}
		}
	})
	if lost != want {
		t.Errorf("%d bytes are counted, %d were sent", lost, want)
	}
	l.end(time.Now())
	end()
}

// A listener that ends while neither the reader nor the keeper may open anything tries again until
// its line is late. Then what it could not take is written down: how many connections, and what the
// keeper finds in the one that it had taken before.
func TestListenerWithoutDescriptorsCounts(t *testing.T) {
	for _, c := range []struct {
		name  string
		late  bool // there are none until the end
		owed  bool // the keeper has one, whose descriptor did not come
		lost  uint64
		after uint64 // connections that nobody has taken
	}{
		{"a moment", false, false, uint64(len("one" + "and two")), 0},
		{"until the end", true, false, 0, 2},
		{"the keeper has one", true, true, uint64(len("one")), 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := newStage(t)
			addr := freeAddress(t)
			l, end := st.reader(Lane{Kind: Newest, Port: addr})
			var journal syncBuffer
			l.read, l.log = full{}, slog.New(slog.NewTextHandler(&journal, nil))
			w := l.wire.(*listening)
			if err := w.listen(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.acceptor.Leave()
			st.has("listener/x") // before there are no descriptors to take it with
			for _, text := range []string{"one", "and two"} {
				st.call(addr, text)
			}
			listener := w.acceptor.socket.fd
			testenv.Until(t, time.Minute, "all have come", func() bool { return sys.Backlogged(listener) == 2 })
			if c.owed {
				if err := w.acceptor.Link.Accept("x", NextOf("x")); err != nil {
					t.Fatal(err)
				}
				e := <-w.acceptor.answers
				e.CloseFDs()
				e.FDs, e.Bare, w.acceptor.asked = nil, true, true
				w.acceptor.answers <- e
			}
			l.giveUp = time.Now()
			if !c.late {
				l.giveUp = l.giveUp.Add(time.Hour)
			}
			l.stop()
			restore := testenv.WithoutDescriptors(t)
			go l.run(nothingLeft)
			if !c.late {
				testenv.Until(t, time.Minute, "it has tried", func() bool {
					return strings.Contains(journal.String(), "tried again")
				})
				restore()
			}
			<-l.done
			var left []string // on the shelf
			if c.late {
				restore()
			} else {
				left = append(left, "port/x")
			}
			st.has(left...)
			end()
			var lost, after uint64
			for _, m := range st.marks() {
				after += m.Refused()
				if m.Kind == spool.Lost {
					lost += m.B
				}
			}
			if lost != c.lost || after != c.after {
				t.Errorf("the spool tells of %d bytes, and of %d connections that nobody has taken; want %d, %d",
					lost, after, c.lost, c.after)
			}
		})
	}
}

// marks is all that is in the spool, whose readers have ended.
func (st *stage) marks() (all []spool.Mark) {
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
		if !ok {
			return all
		}
		all = append(all, m)
	}
}
