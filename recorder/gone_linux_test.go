package recorder

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/seglog"
)

// loseEnd takes some of the newest records that are stored, and leaves a hole for them, and for
// numbers that may have been given.
func (k *killable) loseEnd() (lost int) {
	k.kill()
	lost = k.rng.IntN(min(len(k.all), 40) + 1)
	for i := len(k.all) - lost; i < len(k.all); i++ {
		k.all[i] = seglog.Record{Seq: uint64(i + 1)}
	}
	for range 5 {
		k.all = append(k.all, seglog.Record{Seq: uint64(len(k.all) + 1)})
	}
	k.visible = len(k.all)
	return lost
}

// TestLogLosesItsEnd has a recorder that is killed again and again, and somebody remove the end of
// its log each time. What memory still has is stored again. What it has not is dropped in the books
// of its source, and those say of everything else what the log has, each frame once.
func TestLogLosesItsEnd(t *testing.T) {
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	var gone, again uint64
	for _, kind := range killedKinds {
		for range 6 {
			cfg := killedSource(kind, false)
			s, _, want := lived(t, rng, cfg)
			log, spool := &killable{rng: rng}, s.spooled(t)
			for life, over := 0, false; !over; life++ {
				var l *lane
				l, over = log.live(t, cfg, spool, life < 6)
				if !over {
					again += uint64(log.loseEnd())
					continue
				}
				got := ended(l, log)
				frames, waste := uint64(0), 0
				seen := map[string]bool{}
				for _, e := range log.entries() {
					if e.isWaste() {
						waste += len(e.data) - 8
						continue
					}
					frames++
					if kind == "tally128" && seen[string(bytes.Clone(e.data))] {
						t.Errorf("%s: a frame is in the log twice: %x", kind, e.data)
					}
					seen[string(e.data)] = true
				}
				f := got.Frames
				if f.Stored != frames || f.Durable != frames ||
					f.OK != frames+f.Dropped[causeGone]+f.Dropped[causeKilled] ||
					got.Bytes.Quarantined != uint64(waste) || len(got.Unbalanced) > 0 {
					t.Fatalf("%s: %+v, %+v, %v; the log has %d frames and %d bytes of waste", kind, f, got.Bytes,
						got.Unbalanced, frames, waste)
				}
				if f.OK != want.Frames.OK || f.Missing != want.Frames.Missing || got.Bytes.Read != want.Bytes.Read {
					t.Fatalf("%s: %+v; want those of a lane that lived through it: %+v", kind, f, want.Frames)
				}
				gone += f.Dropped[causeGone]
			}
		}
	}
	if gone == 0 || again <= gone {
		t.Errorf("%d frames gone, of %d records: want some, and others to be stored again", gone, again)
	}
}
