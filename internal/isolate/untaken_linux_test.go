package isolate

import (
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/spool"
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
