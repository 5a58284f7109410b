package length_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/crc16"
	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/frametest"
	"github.com/tallywheel/tallywheel/frame/length"
)

// listener hears a line by a clock of its own.
type listener struct {
	t       *testing.T
	cfg     length.Config
	d       *length.Decoder
	r       frametest.Record
	pending []byte
	since   time.Duration // when the first pending byte came
	now     time.Duration
	cut     *rand.Rand // set: bytes come in pieces, and the decoder is saved and restored behind each
}

func listen(t *testing.T, cfg length.Config, cut *rand.Rand) *listener {
	d, err := length.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &listener{t: t, cfg: cfg, d: d, cut: cut}
}

// hears hears bytes, and then nothing for so long.
func (l *listener) hears(b []byte, silent time.Duration) {
	l.t.Helper()
	for len(b) > 0 {
		n := len(b)
		if l.cut != nil {
			n = 1 + l.cut.IntN(n)
		}
		if len(l.pending) == 0 {
			l.since = l.now
		}
		l.pending, b = append(l.pending, b[:n]...), b[n:]
		l.did(l.d.Decode(l.pending, &l.r))
		if l.cut != nil {
			next := listen(l.t, l.cfg, nil).d
			if err := next.Restore(l.d.State()); err != nil {
				l.t.Fatal(err)
			}
			l.d = next
		}
	}
	for _, after := range []time.Duration{l.d.Silence(), l.d.Patience()} {
		if 0 < after && after <= silent && len(l.pending) > 0 {
			l.did(l.d.Wait(l.pending, after, l.now+after-l.since, &l.r))
		}
	}
	l.now += silent
}

func (l *listener) did(n int) {
	if n > 0 {
		l.pending, l.since = l.pending[n:], l.now
	}
}

// sealed is a frame of two bytes of length and a CRC.
func sealed(content []byte) []byte {
	b := append(binary.BigEndian.AppendUint16(nil, uint16(len(content)+2)), content...)
	return binary.LittleEndian.AppendUint16(b, crc16.Modbus(content))
}

func noise(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

var checked = length.Config{Check: frame.CheckModbus}

// Good frames behind a length that was damaged upwards are stored within Patience and the pause
// behind, however often the device sends, and the damaged one counts once.
func TestDamagedLengthHoldsFramesForPatience(t *testing.T) {
	for _, every := range []time.Duration{
		60 * time.Millisecond, 100 * time.Millisecond, 3 * time.Second,
		8 * time.Second, 15 * time.Second,
	} {
		for seed := range uint64(6) {
			rng := rand.New(rand.NewPCG(seed, 1))
			l := listen(t, checked, nil)
			if seed%2 == 1 {
				l.cut = rand.New(rand.NewPCG(seed, 2))
			}
			var sent [][]byte
			for n := range 250 {
				f := sealed(noise(rng, 1+rng.IntN(20)))
				sent = append(sent, f)
				if n == 10 {
					f = bytes.Clone(f)
					f[0] |= 0x0F // 3840 bytes and more
				}
				l.hears(f, every)
				if n <= 10 {
					continue
				}
				due := length.Patience + every + length.Silence // a frame is behind the damaged one
				if every >= length.Patience {
					due = every + length.Patience
				}
				if late := l.now - 10*every; late > due && len(l.pending) > 0 {
					t.Fatalf("a frame each %v: %d bytes are held %v behind the damaged length", every, len(l.pending),
						late)
				}
			}
			want := slices.Delete(slices.Clone(sent), 10, 11)
			if !slices.EqualFunc(l.r.Frames, want, bytes.Equal) || l.r.Harm != 1 || len(l.r.Skipped) != len(sent[10]) {
				t.Fatalf("a frame each %v, seed %d: %d frames of %d, %d damaged, %d bytes skipped of %d",
					every, seed, len(l.r.Frames), len(want), l.r.Harm, len(l.r.Skipped), len(sent[10]))
			}
		}
	}
}

// A frame that holds frames is one, however slowly it comes and wherever it pauses.
func TestSlowFrameOfFramesIsOne(t *testing.T) {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var inner [][]byte
		for range 40 {
			inner = append(inner, sealed(noise(rng, 1+rng.IntN(30))))
		}
		outer := sealed(bytes.Join(inner, nil))
		l := listen(t, checked, nil)
		l.hears(outer[:2], 200*time.Millisecond)
		for _, f := range inner { // 8.2 s, and each pause is behind a frame
			l.hears(f, 200*time.Millisecond)
		}
		l.hears(outer[len(outer)-2:], time.Second)
		if len(l.r.Frames) != 1 || l.r.Harm != 0 {
			t.Fatalf("seed %d: %d frames, %d damaged within Patience", seed, len(l.r.Frames), l.r.Harm)
		}

		l = listen(t, checked, nil)
		l.hears(outer[:2], time.Minute)
		for _, f := range inner { // 25 minutes and more, and no pause is behind a frame
			n := 1 + rng.IntN(len(f)-1)
			l.hears(f[:n], time.Duration(rng.IntN(60))*time.Second)
			l.hears(f[n:], 0)
		}
		l.hears(outer[len(outer)-2:], time.Second)
		if len(l.r.Frames) != 1 || l.r.Harm != 0 {
			t.Fatalf("seed %d: %d frames, %d damaged of a slow one", seed, len(l.r.Frames), l.r.Harm)
		}

		l = listen(t, checked, nil)
		for _, c := range sealed(noise(rng, 4000)) { // it pauses behind each byte
			l.hears([]byte{c}, time.Duration(rng.IntN(20))*time.Second)
		}
		if len(l.r.Frames) != 1 || l.r.Harm != 0 {
			t.Fatalf("seed %d: %d frames, %d damaged of one byte by byte", seed, len(l.r.Frames), l.r.Harm)
		}
	}
	// That is the limit: two frames of the content, a pause behind them, and Patience is over.
	inner := sealed([]byte("inner"))
	l := listen(t, checked, nil)
	l.hears(sealed(bytes.Repeat(inner, 9))[:2+2*len(inner)], length.Patience-1)
	if l.hears(inner[:3], 1); len(l.r.Frames) != 0 {
		t.Error("it is given up before Patience")
	}
	if l.hears(inner[3:], time.Second); len(l.r.Frames) != 3 || l.r.Harm != 1 {
		t.Errorf("%d frames, %d damaged behind Patience", len(l.r.Frames), l.r.Harm)
	}
}

// How bytes are cut between pauses, and where the decoder is saved and restored, makes no
// difference.
func TestPausesCutInEveryWay(t *testing.T) {
	for seed := range uint64(200) {
		heard := func(cut *rand.Rand) *listener {
			rng := rand.New(rand.NewPCG(seed, 4))
			cfg := []length.Config{
				{Prefix: 2, Check: frame.CheckModbus},
				{Prefix: 1, Check: frame.CheckModbus},
				{Prefix: 4, Check: frame.CheckModbus},
				{Prefix: 2},
			}[seed%4]
			l := listen(t, cfg, cut)
			for range 60 {
				content := noise(rng, rng.IntN(60))
				f := binary.LittleEndian.AppendUint16(bytes.Clone(content), crc16.Modbus(content))
				head := binary.BigEndian.AppendUint32(nil, uint32(len(f)))
				f = append(head[4-cfg.Prefix:], f...)
				switch rng.IntN(6) {
				case 0:
					f[rng.IntN(len(f))] ^= 1 << rng.IntN(8)
				case 1:
					f = f[:rng.IntN(len(f))]
				}
				l.hears(f, []time.Duration{0, 100 * time.Millisecond, 4 * time.Second, 12 * time.Second}[rng.IntN(4)])
			}
			l.d.Break(l.pending, frame.Closed, &l.r)
			return l
		}
		want, got := heard(nil), heard(rand.New(rand.NewPCG(seed, 5)))
		if !slices.EqualFunc(got.r.Frames, want.r.Frames, bytes.Equal) || got.r.Harm != want.r.Harm ||
			!bytes.Equal(got.r.Skipped, want.r.Skipped) ||
			!bytes.Equal(got.r.Order, want.r.Order) {
			t.Fatalf("seed %d: %d frames, %d damaged, %d skipped; in one piece %d, %d, %d", seed,
				len(got.r.Frames), got.r.Harm, len(got.r.Skipped), len(want.r.Frames), want.r.Harm, len(want.r.Skipped))
		}
	}
}

// Without a check there is nothing to find frames by: a pause means nothing.
func TestNoCheckNoPatience(t *testing.T) {
	l := listen(t, length.Config{}, nil)
	if l.d.Silence() != 0 || l.d.Patience() != 0 {
		t.Errorf("it waits for silences of %v and %v", l.d.Silence(), l.d.Patience())
	}
	b := append([]byte{15, 0}, bytes.Repeat(sealed([]byte("x")), 9)...)
	if n := l.d.Wait(b, time.Hour, time.Hour, &l.r); n != 0 || len(l.r.Order) != 0 {
		t.Errorf("%d bytes are classified", n)
	}
}
