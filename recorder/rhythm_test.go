package recorder

import (
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
)

// TestAPauseThatEndsAFrameIsNoSignOfLife: what a decoder held back and gives up behind a pause came
// when its bytes did. A source is silent since then, however late that is.
func TestAPauseThatEndsAFrameIsNoSignOfLife(t *testing.T) {
	l, err := newLane(config.Source{
		ID: "a", Serial: &config.Serial{Port: "x"}, Frame: config.Frame{Kind: "ubx"}, Overflow: config.OverflowBlock, Buffer: 64 << 10,
		SilentAfter: time.Second,
	}, &stubLog{}, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	var now time.Duration
	l.in.steady = func() time.Duration { return now }
	l.in.restart()
	half := []byte{0xb5, 0x62, 1, 7, 92, 0, 1, 2, 3, 4}
	const at = int64(time.Hour)
	if done, _ := l.Arrived(half, len(half), at); done != 0 {
		t.Fatalf("%d bytes of half a frame are classified", done)
	}
	now = 10 * time.Second
	l.Silent(half, at+int64(now))
	if n := l.in.book.Frames().Corrupt; n != 1 || l.in.book.SilentSince(now) == 0 {
		t.Errorf("%d frames damaged; silent since %d, want one, and that nothing has come for 10 s", n, l.in.book.SilentSince(now))
	}
}
