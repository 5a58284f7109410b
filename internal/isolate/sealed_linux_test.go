package isolate

import (
	"net"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/spool"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/reader"
)

// TestSealedListenerIsTaken kills whoever has sealed a listener before it could close that, as at a
// reload. The next one that listens for the source takes connections again.
func TestSealedListenerIsTaken(t *testing.T) {
	st := newStage(t)
	addr := freeAddress(t)
	lane := Lane{Kind: Newest, Port: addr}
	l, end := st.reader(lane)
	if err := l.wire.(*listening).listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := l.wire.rest(); d != nil {
		t.Fatal("a connection waits, and nobody has connected")
	}
	if c, err := net.DialTimeout("tcp", addr, 50*time.Millisecond); err == nil {
		_ = c.Close()
		t.Skip("SKIPPED: the listener is not sealed; run this where a process may set SO_ATTACH_FILTER")
	}
	end()

	l, end = st.reader(lane)
	defer end()
	st.call(addr, "one") // a connection that the seal had dropped is tried again within seconds
	d := st.open(l)
	st.brings(d, "one")
	_ = d.Close()
}

// leaver is a reader that another one is to replace as soon as it has begun with a device.
type leaver struct {
	reader.Reader
	line  *line
	added int
}

func (r *leaver) Add(reader.Port) (reader.Handle, error) {
	r.added++
	r.line.mu.Lock()
	defer r.line.mu.Unlock()
	r.line.left()
	return removed{r.line}, nil
}

// removed is a device that is read no more.
type removed struct{ line *line }

func (h removed) Resume() {}
func (h removed) Finish() {}
func (h removed) Remove() { h.line.closed <- reader.ErrRemoved }

// TestReaderIsReplacedWhileALineEnds has another reader go on while a line reads what waits behind
// its end. The next one reads all of it: no connection takes the place of one that was not read.
func TestReaderIsReplacedWhileALineEnds(t *testing.T) {
	st := newStage(t)
	addr := freeAddress(t)
	by := time.Now().Add(time.Minute)
	lane := Lane{Kind: First, Port: addr, GiveUp: &by}
	l, end := st.reader(lane)
	if err := l.wire.(*listening).listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	texts := []string{"one", "two", "three"}
	for _, text := range texts {
		st.call(addr, text)
	}
	r := &leaver{line: l}
	l.read, l.giveUp = r, by
	l.stop()
	l.run(nothingLeft)
	if r.added != 1 {
		t.Errorf("it has begun with %d connections", r.added)
	}
	end()
	st.has("listener/x", "port/x")

	l, end = st.reader(lane)
	read, err := reader.New(reader.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	l.read, l.giveUp = read, by
	l.stop()
	before := nothingLeft
	st.k.mu.Lock()
	before.fd, err = sys.Dup(st.k.entry(PortOf("x")).fds[0])
	st.k.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	l.run(before)
	end()
	c, err := st.spool.Consumer(0)
	if err != nil {
		t.Fatal(err)
	}
	got, ended := "", false
	for {
		m, b, ok, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		got += string(b)
		ended = m.Kind == spool.Ended
		c.Done(len(b))
	}
	if got != "onetwothree" || !ended {
		t.Errorf("it brings %q, and has ended: %v", got, ended)
	}
}
