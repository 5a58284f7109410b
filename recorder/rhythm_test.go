package recorder

import (
	"io"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/reader"
)

// silentLane is a lane, open at time 0, that is silent after a second.
func silentLane(t *testing.T, kind string, now *time.Duration) *lane {
	t.Helper()
	l, err := newLane(config.Source{
		ID: "a", Serial: &config.Serial{Port: "x"}, Frame: config.Frame{Kind: kind}, Overflow: config.OverflowBlock,
		Buffer:      64 << 10,
		SilentAfter: time.Second,
	}, &stubLog{}, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	l.in.steady = func() time.Duration { return *now }
	l.in.restart()
	return l
}

// TestAPauseThatEndsAFrameIsNoSignOfLife: what a decoder held back and gives up behind a pause came
// when its bytes did. A source is silent since then, however late that is.
func TestAPauseThatEndsAFrameIsNoSignOfLife(t *testing.T) {
	var now time.Duration
	l := silentLane(t, "ubx", &now)
	half := []byte{0xb5, 0x62, 1, 7, 92, 0, 1, 2, 3, 4}
	const at = int64(time.Hour)
	if done, _ := l.Arrived(half, len(half), at); done != 0 {
		t.Fatalf("%d bytes of half a frame are classified", done)
	}
	now = 10 * time.Second
	l.Silent(half, at+int64(now))
	if n := l.in.book.Frames().Corrupt; n != 1 || l.in.book.SilentSince(now) == 0 {
		t.Errorf("%d frames damaged; silent since %d, want one, and that nothing has come for 10 s", n,
			l.in.book.SilentSince(now))
	}
}

// A silence that ends as the device is unplugged is one; the time without it is none, nor is one
// that a stop ends.
func TestASilenceEndsWithItsDevice(t *testing.T) {
	for why, want := range map[error]uint64{io.EOF: 1, reader.ErrRemoved: 0} {
		var now time.Duration
		l := silentLane(t, "line", &now)
		silences := func() uint64 { return l.in.book.Sheet("a", ledger.StateOpen, ledger.Held{}, nil).Silences }
		const at = int64(time.Hour)
		one := []byte("a line\n")
		l.Arrived(one, len(one), at)
		now = 5 * time.Second
		l.Closed(nil, at+int64(now), why)
		if n := silences(); n != want {
			t.Errorf("%v: %d silences, want %d", why, n, want)
		}
		now = 500 * time.Second
		l.in.restart()
		l.Arrived(one, len(one), at+int64(now))
		if n := silences(); n != want {
			t.Errorf("%v: %d silences once it is there again, want %d", why, n, want)
		}
	}
}

// TestAFrameThatAnEndEndsIsHeard: the last frame of a framing that sees its end only by what comes
// behind it ends a silence when its bytes came, whether the source or its device ends then.
func TestAFrameThatAnEndEndsIsHeard(t *testing.T) {
	for _, why := range []error{reader.ErrRemoved, io.EOF} {
		var now time.Duration
		l := silentLane(t, "raw", &now)
		const at = int64(time.Hour)
		for _, when := range []time.Duration{0, 2500 * time.Millisecond} {
			now = when
			if done, _ := l.Arrived([]byte("abc"), 3, at+int64(now)); done != 0 {
				t.Fatalf("%d bytes of a chunk that goes on are classified", done)
			}
			if now += 100 * time.Millisecond; when == 0 {
				l.Silent([]byte("abc"), at+int64(now))
			}
		}
		now += 500 * time.Millisecond
		l.Closed([]byte("abc"), at+int64(now), why)
		if s := l.in.book.SilentSince(now); l.in.book.Frames().Unique != 2 || s != 0 {
			t.Errorf("%v: %d frames; silent since %v, want two, and no silence: the last came less than 1 s ago", why,
				l.in.book.Frames().Unique, s)
		}
		if n := l.in.book.Sheet("a", ledger.StateStopped, ledger.Held{}, nil).Silences; n != 1 {
			t.Errorf("%v: %d silences, want one", why, n)
		}
	}
}
