package forward

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/tallywheel/tallywheel/internal/testenv"
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
