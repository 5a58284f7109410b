package recorder

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/seglog"
)

// damage makes some records that are stored unreadable, and returns how many of those were of the
// lane.
func (k *killable) damage() (n int) {
	k.kill()
	if len(k.all) == 0 {
		return 0
	}
	at := len(k.all) - 1 - k.rng.IntN(min(len(k.all), 60))
	for i := at; i < min(at+1+k.rng.IntN(20), len(k.all)); i++ {
		switch k.all[i].Stream {
		case 0: // a hole stays one
			continue
		case frameStream, wasteStream:
			n++
		}
		k.all[i].Stream = damagedStream
	}
	return n
}

// TestLogIsDamaged has a recorder that is killed again and again, and somebody damage what the log
// has stored last each time, or remove some of it. The next goes on. What memory still has is
// stored again, each frame once. The books have all of it as stored, but for what they name as
// gone.
func TestLogIsDamaged(t *testing.T) {
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	var gone, damaged uint64
	for _, kind := range killedKinds {
		for range 12 {
			cfg := killedSource(kind, false)
			s, _, want := lived(t, rng, cfg)
			log, spool := &killable{rng: rng}, s.spooled(t)
			harm, removed := 0, 0
			for life, over := 0, false; !over; life++ {
				var l *lane
				l, over = log.live(t, cfg, spool, life < 6)
				if !over {
					if rng.IntN(3) == 0 {
						removed += log.loseEnd()
					} else {
						harm += log.damage()
					}
					continue
				}
				got := ended(l, log)
				frames, seen := uint64(0), map[string]bool{}
				for _, e := range log.entries() {
					if e.isWaste() {
						continue
					}
					frames++
					if kind == "tally128" && seen[string(e.data)] {
						t.Errorf("%s: a frame is in the log twice: %x", kind, e.data)
					}
					seen[string(bytes.Clone(e.data))] = true
				}
				f := got.Frames
				if f.OK != want.Frames.OK || f.Stored+f.Dropped[causeGone] != f.OK || f.Durable != f.Stored ||
					f.Missing != want.Frames.Missing || len(got.Unbalanced) > 0 {
					t.Fatalf("%s: %+v, %+v, %v; want %+v", kind, f, got.Bytes, got.Unbalanced, want.Frames)
				}
				if frames > f.Stored || f.Stored-frames > uint64(harm) {
					t.Fatalf("%s: the log has %d frames, the books %d, and %d records were damaged", kind, frames,
						f.Stored, harm)
				}
				// Of whom the damaged ones before what was removed are cannot be read.
				if n := f.Dropped[causeGone]; n > uint64(removed+harm) {
					t.Errorf("%s: %d frames gone, of %d removed and %d damaged", kind, n, removed, harm)
				}
				gone, damaged = gone+f.Stored-frames, damaged+uint64(harm)
			}
		}
	}
	if gone == 0 || damaged < 2*gone {
		t.Errorf("%d frames gone, of %d records that were damaged: want some, and others to be stored again", gone,
			damaged)
	}
}

// The log of a recorder that is killed is damaged behind the checkpoint of a spool, and has records
// behind the damage: they are known, and those in the damage are taken again.
func TestReplayPassesOverDamage(t *testing.T) {
	path := t.TempDir()
	dir, err := seglog.Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	log, err := seglog.Open(seglog.Config{
		FS: dir, SegmentBytes: 1 << 20, Sync: seglog.SyncBatch, BatchDelay: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	data := bytes.Repeat([]byte("x"), 100)
	batch := func(from int) {
		t.Helper()
		for i := range 10 {
			if _, err := log.AppendAt(frameStream, 1, uint64(from+i)*100, data); err != nil {
				t.Fatal(err)
			}
		}
		if err := log.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		batch(10 * i)
	}
	segs, err := filepath.Glob(filepath.Join(path, "*.seg"))
	if err != nil || len(segs) != 1 {
		t.Fatal(segs, err)
	}
	b, err := os.ReadFile(segs[0])
	if err != nil {
		t.Fatal(err)
	}
	for i, n := 0, 0; n < 40; n++ { // the data of the second batch
		i += bytes.Index(b[i:], data)
		if n >= 10 && n < 20 {
			clear(b[i:][:len(data)])
		}
		i += len(data)
	}
	if err := os.WriteFile(segs[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := newReplay(liveLog{log}, 5, frameStream)
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[uint64]uint64{5: 6, 9: 10, 20: 21, 39: 40} {
		if seq, err := r.TryAppendAt(frameStream, 1, n*100, data); err != nil || seq != want {
			t.Errorf("frame %d is record %d, %v; want %d", n, seq, err, want)
		}
	}
	for n := uint64(10); n < 20; n++ {
		if seq, err := r.TryAppendAt(frameStream, 1, n*100, data); err != nil || seq != n+31 {
			t.Errorf("frame %d, which was damaged, is record %d, %v; want %d", n, seq, err, n+31)
		}
	}
	if seq, ok := r.next(1500); !ok || seq != 11 {
		t.Errorf("the next begins at record %d, %v; want 11, where the damage does", seq, ok)
	}
}
