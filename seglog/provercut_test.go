package seglog

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/fault"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/proof"
)

// cutter takes the state that a power cut leaves, before each call that makes heads and
// checkpoints.
type cutter struct {
	faulty
	seed   uint64
	on     *atomic.Bool
	taken  func(*fault.Dir)
	stolen *atomic.Int64
}

func (c cutter) cut() {
	if c.on.Load() {
		c.taken(c.Crash(c.seed + uint64(c.stolen.Add(1))))
	}
}

func isProof(name string) bool {
	return strings.HasPrefix(name, headsFile) || strings.HasPrefix(name, checkpointFile)
}

func (c cutter) Create(name string) (File, error) {
	f, err := c.faulty.Create(name)
	return c.file(name, f, err)
}

func (c cutter) Open(name string) (File, error) {
	f, err := c.faulty.Open(name)
	return c.file(name, f, err)
}

func (c cutter) file(name string, f File, err error) (File, error) {
	if err != nil || !isProof(name) {
		return f, err
	}
	c.cut()
	return cutFile{f, c}, nil
}

func (c cutter) Rename(from, to string) error {
	if isProof(from) {
		c.cut()
		defer c.cut()
	}
	return c.faulty.Rename(from, to)
}

func (c cutter) Sync() error {
	c.cut()
	return c.faulty.Sync()
}

type cutFile struct {
	File
	c cutter
}

func (f cutFile) WriteAt(b []byte, off int64) (int, error) {
	f.c.cut()
	if half := len(b) / 2; half > 0 { // and in the middle
		if n, err := f.File.WriteAt(b[:half], off); err != nil {
			return n, err
		}
		f.c.cut()
		n, err := f.File.WriteAt(b[half:], off+int64(half))
		return half + n, err
	}
	return f.File.WriteAt(b, off)
}

func (f cutFile) Sync() error {
	f.c.cut()
	defer f.c.cut()
	return f.File.Sync()
}

// Wherever the power is cut while heads and checkpoints are made, the next start makes the same
// heads, and no checkpoint that was told before is gone or contradicted.
func TestPowerCutWhileProving(t *testing.T) {
	for name, keep := range map[string]int64{"all is kept": 0, "retention at work": 4} {
		t.Run(name, func(t *testing.T) { cutWhileProving(t, keep) })
	}
}

// cutWhileProving cuts the power while a log proves itself that keeps so many segments; 0: all.
func cutWhileProving(t *testing.T, keep int64) {
	sign, key := keys(t, "test.example/log")
	type state struct {
		dir  *fault.Dir
		told [][]byte
	}
	var mu sync.Mutex
	var states []state
	h := &heard{}
	d := fault.New()
	c := cutter{faulty: faulty{d}, seed: testenv.Seed(t), on: &atomic.Bool{}, stolen: &atomic.Int64{}}
	c.taken = func(d *fault.Dir) {
		told := h.published()
		mu.Lock()
		defer mu.Unlock()
		states = append(states, state{d, told})
	}
	cfg := small(c, SyncAlways)
	cfg.KeepBytes, cfg.Proves = keep*cfg.SegmentBytes, true
	l := open(t, cfg)
	c.on.Store(true)
	l.Prove(h.proving(sign))
	fillLog(t, l, 1, 500)
	allProven(t, l)
	c.on.Store(false)
	fillLog(t, l, 501, 520)
	closeLog(t, l)
	whole := d.Bytes(headsFile)
	if len(states) < 40 {
		t.Fatalf("%d cuts", len(states))
	}
	rng := rand.New(rand.NewPCG(c.seed, 3))
	rng.Shuffle(len(states), func(i, j int) { states[i], states[j] = states[j], states[i] })
	for i, s := range states[:min(len(states), 120)] {
		again := &heard{}
		cfg.FS = faulty{s.dir}
		l := openHarmed(t, cfg)
		l.Prove(again.proving(sign))
		allProven(t, l)
		closeLog(t, l)
		if got := s.dir.Bytes(headsFile); !bytes.HasPrefix(whole, got) {
			t.Fatalf("cut %d: the heads are others", i)
		}
		if again.trouble() != "" {
			t.Errorf("cut %d: %s", i, again.trouble())
		}
		for _, told := range s.told {
			if _, _, problems := held(t, s.dir, Held{Keys: []proof.Verifier{key}, Since: told}); problems != "" {
				t.Fatalf("cut %d: %s", i, problems)
			}
		}
	}
}

// A head whose sync has failed is shown by the kernel, and may not be on the disk: the next opening
// writes it once more before a checkpoint counts it.
func TestHeadAfterAFailedSync(t *testing.T) {
	d, h := fault.New(), &heard{}
	var fails atomic.Bool
	fails.Store(true)
	d.SetInject(func(op fault.Op, name string) (int, error) {
		if fails.Load() && op == fault.OpSync && name == headsFile {
			return 0, syscall.EIO
		}
		return 0, nil
	})
	l := open(t, small(faulty{d}, SyncAlways))
	l.Prove(h.proving(nil))
	fillLog(t, l, 1, 200)
	testenv.Until(t, time.Minute, "it says that it stops",
		func() bool { return strings.Contains(h.trouble(), "sync failed") })
	closeLog(t, l)
	fails.Store(false)
	if len(h.published()) > 0 {
		t.Error("a checkpoint counts a head that is not synced")
	}
	l = open(t, small(faulty{d}, SyncAlways))
	l.Prove((&heard{}).proving(nil))
	allProven(t, l)
	want := d.Bytes(headsFile)
	for seed := range uint64(30) {
		if got := d.Crash(seed).Bytes(headsFile); !bytes.Equal(got, want) {
			t.Fatalf("cut %d: %d bytes of heads are left of %d, or others", seed, len(got), len(want))
		}
	}
	closeLog(t, l)
}

// A disk that refuses heads keeps nobody from recording, nor retention from its work; the heads
// come once it takes them, but for what retention removed, which is named.
func TestHeadsThatCannotBeWritten(t *testing.T) {
	d, h := fault.New(), &heard{}
	var full atomic.Bool
	full.Store(true)
	d.SetInject(func(op fault.Op, name string) (int, error) {
		if full.Load() && op == fault.OpWrite && isProof(name) {
			return 0, syscall.EIO
		}
		return 0, nil
	})
	cfg := small(faulty{d}, SyncAlways)
	cfg.KeepBytes = 4 * cfg.SegmentBytes
	l := open(t, cfg)
	l.Prove(h.proving(nil))
	fillLog(t, l, 1, 1500)
	testenv.Until(t, 2*time.Minute, "retention goes on without heads", func() bool { return l.Position().First > 500 })
	if !strings.Contains(h.trouble(), "write heads") {
		t.Errorf("it says %q", h.trouble())
	}
	full.Store(false)
	fillLog(t, l, 1501, 1700)
	allProven(t, l)
	closeLog(t, l)
	s, p, problems := held(t, d, Held{})
	for _, line := range strings.Split(problems, "\n") { // retention may have gone on until the first one was written
		if line != "" && !strings.Contains(line, "there is no head of these") {
			t.Error(line)
		}
	}
	if !s.Clean() || p.Segments == 0 {
		t.Errorf("%+v", p)
	}
}
