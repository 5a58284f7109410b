package recorder

import (
	"testing"

	"github.com/tallywheel/tallywheel/frame/tally128"
)

// Frames that come again behind a kill, and that the log has, are stored though the disk has been
// full since, so that no commit has come: a stop dropped them.
func TestWhatComesAgainIsStoredOnAFullDisk(t *testing.T) {
	_, dir := recordedFor(t, t.TempDir(), 100)
	g := start(t, dir, nil, tcp("a"))
	l, log := testLane(t, "drop-newest")
	l.in.spooled = true
	h := &had{sequences: map[uint64]uint64{}}
	for n := range uint64(100) {
		h.sequences[n*tally128.Size], h.end = n+1, n*tally128.Size+1
	}
	l.out.log = &replay{appender: log, had: map[uint32]*had{l.out.stream: h}}
	l.Arrived(frames(0, 100), 100*tally128.Size, 1)
	l.settle(g.commits.get(), 1)
	l.lose(causeDiskFull)
	if f := balanced(t, l); f.Stored != 100 || f.Durable != 100 || len(f.Dropped) != 0 {
		t.Errorf("%+v; want 100 stored, and none dropped", f)
	}
	stop(t, g)
}
