package forward

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/seglog"
)

// Frames of several sources, some with names that no subject can hold, arrive once and in order,
// whether the forwarder or the server begins anew between them.
func TestForwards(t *testing.T) {
	w := newWorld(t, nil)
	sources := []string{"a", "line-1.x", "gate/10.0.0.7"}
	w.add(100, sources...)
	w.forward()
	w.caughtUp()
	w.add(33, sources...)
	w.caughtUp()
	w.forward() // another one, which asks both witnesses
	w.add(20, "new", "a")
	w.caughtUp()
	w.unserve()
	w.add(30, sources...)
	w.fails("down", reasonUnreachable)
	w.serve()
	w.caughtUp()
	same(t, consumed(t, w.url(), "TALLYWHEEL"), logged(t, w.dir))
	b := w.book()
	if b.Gone != 0 || b.Reconnects != 1 {
		t.Errorf("the books say %+v", b)
	}
	for _, s := range b.Sources {
		if s.ID == "a" && (s.Acknowledged != s.Forwarded || s.Acknowledged != 20+30 || s.Resent != 0) {
			t.Errorf("the books of a say %+v", s)
		}
	}
}

// With one frame a message, the message is the frame.
func TestForwardsBareFrames(t *testing.T) {
	w := newWorld(t, nil)
	w.cfg.Forward[0].Batch.Frames = 1
	w.add(10, "a", "b")
	w.forward()
	w.caughtUp()
	same(t, consumed(t, w.url(), "TALLYWHEEL"), logged(t, w.dir))
}

// The server within takes what others can read, and has it again behind a start.
func TestServerWithin(t *testing.T) {
	w := newWorld(t, nil)
	w.cfg.Forward[0].URLs, w.cfg.Forward[0].Listen = nil, "127.0.0.1:0"
	w.add(50, "a", "b")
	w.forward()
	w.caughtUp()
	w.forward()
	w.add(50, "b", "c")
	w.caughtUp()
	same(t, consumed(t, w.book().Address, "TALLYWHEEL"), logged(t, w.dir))
}

// A stop brings away what is durable, whatever the delay of batches, and takes no time where nobody
// is there to take it: then it says what is left.
func TestFinish(t *testing.T) {
	w := newWorld(t, nil)
	w.cfg.Forward[0].Batch = config.Batch{Frames: 1000, Delay: time.Minute}
	w.add(100, "a", "b")
	w.forward()
	w.fw.patience = time.Hour
	w.fw.Finish()
	if b := w.book(); b.LagRecords != 0 || b.Through != 200 {
		t.Errorf("the books say %+v", b)
	}
	same(t, consumed(t, w.url(), "TALLYWHEEL"), logged(t, w.dir))
	w.unserve()
	w.add(7, "a")
	var said bytes.Buffer
	w.told = &said
	w.forward()
	w.fails("down", reasonUnreachable)
	w.fw.patience = time.Hour
	w.fw.Finish()
	if b := w.book(); b.LagRecords != 7 || !strings.Contains(said.String(), "not all of the log is forwarded") ||
		!strings.Contains(said.String(), "lag_records=7 ") {
		t.Errorf("%d are left; it says %s", b.LagRecords, said.String())
	}
	w.told, w.cfg.Forward[0].Batch.Delay = nil, 0
	w.serve()
	w.forward()
	w.caughtUp()
	same(t, consumed(t, w.url(), "TALLYWHEEL"), logged(t, w.dir))
}

// A server that takes a connection and says nothing does not keep a stop waiting.
func TestStopWaitsForNobody(t *testing.T) {
	was := callPatience
	callPatience = time.Hour
	t.Cleanup(func() { callPatience = was })
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, nil)
	w.cfg.Forward[0].URLs = []string{"nats://" + mute.Addr().String()}
	w.add(1, "a")
	w.forward()
	c, err := mute.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { w.fw.Finish(); close(ended) }()
	testenv.Until(t, time.Minute, "it ends", func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	_, _ = c.Close(), mute.Close()
	if b := w.book(); b.LagRecords != 1 {
		t.Errorf("%d records are behind, want 1", b.LagRecords)
	}
}

// Notes at the end of a log are nothing that is behind.
func TestNotesAreNoLag(t *testing.T) {
	w := newWorld(t, nil)
	w.add(3, "a")
	number, err := w.streams.Number(archive.Stream{Source: "a", Frame: "line"})
	if err == nil {
		_, err = w.log.TryAppendDrop(number, 1, seglog.Drop{})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.add(0)
	w.forward()
	w.caughtUp()
	if b := w.book(); b.LagRecords != 0 || b.Through != 4 {
		t.Errorf("the books say %+v", b)
	}
}

func TestEscape(t *testing.T) {
	testenv.Check(t, func(t *rapid.T) {
		a, b := rapid.String().Draw(t, "a"), rapid.String().Draw(t, "b")
		if back, err := Unescape(Escape(a)); err != nil || back != a {
			t.Fatalf("%q comes back as %q, %v", a, back, err)
		}
		if (Escape(a) == Escape(b)) != (a == b) {
			t.Fatalf("%q and %q have one name", a, b)
		}
		for _, c := range Escape(a) {
			if c <= ' ' || c > '~' || c == '.' || c == '*' || c == '>' || c == '/' || c == '+' || c == '#' {
				t.Fatalf("%q has %q, which no subject can hold", Escape(a), c)
			}
		}
	})
}

// watched looks at a walker when it sends.
type watched struct {
	link
	t        *testing.T
	w        *walker
	messages int
}

func (a *watched) send(l *lane, m *message) error {
	a.messages++
	held := 0
	for _, l := range a.w.lanes {
		if held += l.size(); l.flying != nil {
			held += len(l.flying.body)
		}
	}
	if held != a.w.memory || held > maxMemory+1<<20 {
		a.t.Errorf("%d bytes fill or are on their way, and %d are counted", held, a.w.memory)
	}
	return a.link.send(l, m)
}

// A backlog of many sources, larger than the memory for messages, goes out within it, and in large
// ones.
func TestLargeBacklogOfManySources(t *testing.T) {
	w := newWorld(t, nil)
	w.cfg.Forward[0].Batch = config.Batch{}
	const sources, frames, size = 40, 192, 16 << 10
	w.add(1, "s0")
	w.forward()
	w.caughtUp()
	w.fw.Stop()
	data := bytes.Repeat([]byte("frame"), size/5)
	for range frames {
		for i := range sources {
			number, err := w.streams.Number(archive.Stream{Source: fmt.Sprintf("s%d", i), Frame: "line"})
			if err == nil {
				_, err = w.log.Append(number, time.Now().UnixNano(), data)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	w.add(0)
	d := w.fw.all[0]
	to, err := d.dial(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	defer to.close()
	seen := &watched{link: to, t: t}
	if seen.w, err = d.walker(t.Context(), seen); err != nil {
		t.Fatal(err)
	}
	close(d.last)
	if err := seen.w.walk(t.Context()); !errors.Is(err, errSent) {
		t.Fatal(err)
	}
	same(t, consumed(t, w.url(), "TALLYWHEEL"), logged(t, w.dir))
	if total := sources * frames * size; seen.messages > total/(200<<10) || seen.w.memory != 0 || seen.w.away != 0 {
		t.Errorf("%d messages for %d bytes; %d bytes are counted in the end, %d on their way", seen.messages, total,
			seen.w.memory, seen.w.away)
	}
}
