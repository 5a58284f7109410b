package recorder

import (
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
)

// Frames behind a length that was damaged upwards are stored once the damaged one has waited for
// its end for 10 s, though bytes come all the time: the clock runs from its first byte.
func TestFramesBehindADamagedLengthAreStored(t *testing.T) {
	cfg := lines("a", "")
	cfg.Frame = config.Frame{Kind: "length", Check: "modbus"}
	l, err := newLane(cfg, &stubLog{}, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	good := append([]byte{0, 12}, sealed(make([]byte, 10))...)
	damaged := append([]byte{15, 12}, good[2:]...) // 3852 bytes
	var held []byte
	now := int64(time.Hour)
	hears := func(b []byte) {
		held = append(held, b...)
		done, _ := l.Arrived(held, len(b), now)
		held = held[done:]
		if len(held) > 0 {
			held = held[l.Silent(held, now+int64(50*time.Millisecond)):]
		}
		now += int64(100 * time.Millisecond)
	}
	hears(good)
	now += int64(time.Hour)
	hears(damaged)
	for range 99 { // 9.9 s behind the damaged one
		hears(good)
	}
	if p := l.sheet(); p.Frames.OK != 1 || p.Frames.Corrupt != 0 || p.Bytes.Partial != uint64(100*len(good)) {
		t.Errorf("%+v; want one frame, and the others held", p)
	}
	hears(good)
	hears(good)
	if p := l.sheet(); p.Frames.OK != 102 || p.Frames.Corrupt != 1 || p.Bytes.Resync != uint64(len(damaged)) ||
		p.Bytes.Partial != 0 {
		t.Errorf("%+v; want 102 frames, and one damaged", p)
	}
	hears(damaged)
	for range 20 {
		hears(good)
	}
	if now -= int64(time.Hour); len(held) != 21*len(good) { // somebody sets the clock
		t.Fatalf("%d bytes are held", len(held))
	}
	for range 101 {
		hears(good)
	}
	if p := l.sheet(); p.Frames.OK != 223 || p.Frames.Corrupt != 2 || p.Bytes.Partial != 0 {
		t.Errorf("%+v; want 223 frames behind a clock that was set", p)
	}
}
