package lab_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

// TestReadersTakeNoTimeOutOfDamage: whatever the time of a damaged frame is, no reader, in whatever
// language, takes it for that at which the frame was due.
func TestReadersTakeNoTimeOutOfDamage(t *testing.T) {
	b := quickBench(t)
	b.Dir = t.TempDir()
	e := &lab.Experiment{Name: "serial-strategies", Scene: damagedTimes}
	for _, name := range []string{"c/epoll", "os.File", "go.bug.st/serial", "rust/blocking", "pyserial"} {
		for _, c := range experiment(t, e.Name).Contestants {
			if c.Name != name || c.Skip != nil && c.Skip(steady) {
				continue
			}
			m, err := b.ShortestTurn(t.Context(), e, c, steady)
			if err != nil {
				t.Logf("SKIPPED: %s: %v; give it what that names", name, err)
				continue
			}
			longest, ok := m[lab.LatencyMax.String()]
			if !ok || longest < 0 || longest > float64(time.Hour.Microseconds()) || m["ops"] < 4 {
				t.Errorf("%s: %v frames, the longest latency is %v µs", name, m["ops"], longest)
			}
		}
	}
}

var steady = lab.Params{"condition": "steady"}

// damagedTimes is a port that delivers whole frames and some whose time is damaged.
func damagedTimes(b *lab.Bench, _ *lab.Contestant, _ lab.Params) (*lab.Scene, error) {
	p, err := serialtest.NewPort(filepath.Join(b.Dir, "line"))
	if err != nil {
		return nil, err
	}
	load := func(context.Context, time.Duration) (func(lab.Metrics), error) {
		var f [tally128.Size]byte
		for _, bit := range []byte{0, 1 << 7, 1 << 4, 1 << 3, 0} {
			tally128.Encode(f[:], tally128.Header{DeviceTime: time.Now().UnixNano()}, nil)
			f[27] ^= bit // the highest byte of the time, 20 to 27
			if n, err := p.Write(f[:]); err != nil || n < len(f) {
				return nil, errors.Join(errors.New("the port did not take a frame"), err)
			}
		}
		if !serialtest.DrainAll([]*serialtest.Port{p}, time.Minute) {
			return nil, errors.New("it does not read to the end")
		}
		return func(lab.Metrics) {}, nil
	}
	return &lab.Scene{Params: lab.Params{"paths": p.Link}, Load: load, Close: p.Close}, nil
}
