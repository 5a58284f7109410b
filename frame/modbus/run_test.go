package modbus_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/frametest"
	"github.com/tallywheel/tallywheel/frame/modbus"
)

// vendor makes n exchanges by functions whose lengths nobody knows; in between are some of known
// ones. With zeros, CRCs may end in 0: a silence before that byte ends a frame, too.
func vendor(rng *rand.Rand, n, longest int, zeros bool) (all [][]byte) {
	data := func(unit, fc byte) []byte {
		b := make([]byte, 3+rng.IntN(1+rng.IntN(longest-5)))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		for b[0], b[1] = unit, fc; ; b[len(b)-1]++ {
			if f := sealed(b...); zeros || f[len(f)-1] != 0 { // the CRC before a 0 at the end is right, too
				return f
			}
		}
	}
	for range n {
		unit := byte(1 + rng.IntN(3))
		fc := []byte{9, 0x41, 0x5A, 0x64, 0x6D}[rng.IntN(5)]
		switch rng.IntN(8) {
		case 0:
			known := traffic(rng, 1)
			if known[0][0] != 0 { // one to all units looks like the end of a CRC that has a 0 more
				all = append(all, known...)
			}
		case 1:
			all = append(all, data(unit, fc), sealed(unit, fc|0x80, byte(1+rng.IntN(4))))
		default:
			all = append(all, data(unit, fc), data(unit, fc))
		}
	}
	return all
}

// shown is a stream that came in pieces, with silences behind some of them, through a decoder that
// is saved and restored behind each.
func shown(t *testing.T, stream []byte, piece func() int, silent func() bool) (r frametest.Record) {
	t.Helper()
	d, done := modbus.New(19200, 11), 0
	for at := 0; at < len(stream); {
		at = min(at+piece(), len(stream))
		done += d.Decode(stream[done:at], &r)
		if silent() {
			done += d.Pause(stream[done:at], &r)
		}
		next := modbus.New(19200, 11)
		if err := next.Restore(d.State()); err != nil {
			t.Fatal(err)
		}
		d = next
		if at-done > d.Max() {
			t.Fatalf("%d bytes pending", at-done)
		}
	}
	d.Break(stream[done:], frame.Silence, &r)
	return r
}

// Requests and answers of functions that are not in the table are found however they are merged,
// split and mixed with others. One silence in 65,536 that an adapter makes within a frame seems to
// end it: none of these does.
func TestVendorFunctionsMergedAndSplitInEveryWay(t *testing.T) {
	most := uint64(200)
	if testing.Short() {
		most = 60
	}
	for seed := range most {
		rng := rand.New(rand.NewPCG(seed, 13))
		often := rng.IntN(5) // 0: no silence at all
		sent := vendor(rng, 60, []int{16, 60, modbus.MaxSize}[seed%3], often == 0)
		stream := bytes.Join(sent, nil)
		r := shown(t, stream,
			func() int { return 1 + rng.IntN([]int{3, 40, 700}[rng.IntN(3)]) },
			func() bool { return rng.IntN(4) < often },
		)
		if len(r.Skipped) > 0 || r.Harm > 0 || len(r.Frames) != len(sent) {
			t.Errorf("seed %d: %d frames of %d, %d bytes skipped, %d damaged", seed, len(r.Frames), len(sent),
				len(r.Skipped), r.Harm)
		}
		for i := range min(len(sent), len(r.Frames)) {
			if !bytes.Equal(r.Frames[i], sent[i]) {
				t.Errorf("seed %d: frame %d is % X, sent % X", seed, i, r.Frames[i], sent[i])
				break
			}
		}
	}
}

// An adapter holds each request back until its answer has come, too.
func TestVendorRequestAndAnswerInOneChunk(t *testing.T) {
	request, answer := sealed(1, 0x5A, 7), sealed(1, 0x5A, 7, 1, 2, 3, 4, 5, 6, 7, 8)
	pair := append(bytes.Clone(request), answer...)
	d := modbus.New(9600, 11)
	var r frametest.Record
	for range 50 {
		done := d.Decode(pair, &r)
		if done += d.Pause(pair[done:], &r); done != len(pair) {
			t.Fatalf("%d bytes of %d are classified", done, len(pair))
		}
	}
	if len(r.Frames) != 100 || r.Harm != 0 || len(r.Skipped) != 0 {
		t.Errorf("%d frames of 100, %d damaged, %d bytes skipped", len(r.Frames), r.Harm, len(r.Skipped))
	}
}

// A pair is believed also where what comes behind it is cut off.
func TestVendorPairBeforeCutFrame(t *testing.T) {
	stream := bytes.Join([][]byte{sealed(1, 0x5A, 7), sealed(1, 0x5A, 7, 9), sealed(1, 0x64, 1, 2, 3, 4)[:6]}, nil)
	var r frametest.Record
	modbus.New(9600, 11).Break(stream, frame.Silence, &r)
	if len(r.Frames) < 1 || !bytes.Equal(r.Frames[0], stream[:5]) {
		t.Errorf("frames % X of % X", r.Frames, stream)
	}
}

// In noise a CRC-16 lets one frame in 65,536 pieces through that a silence ends. What may follow a
// frame makes it no more. Pieces that no silence ends for 512 bytes have as much.
func TestNoiseBringsNoMoreThanChance(t *testing.T) {
	const pieces = 1 << 16
	for _, longest := range []int{60, 700} {
		rng := rand.New(rand.NewPCG(1, 12))
		var r frametest.Record
		frames, unknown := 0, 0
		for range pieces {
			b := make([]byte, 4+rng.IntN(longest-4))
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			b[1] = 0x5A
			d := modbus.New(19200, 11)
			r = frametest.Record{}
			done := d.Decode(b, &r)
			d.Break(b[done:], frame.Silence, &r)
			frames += len(r.Frames)
			if len(r.Frames) > 0 && bytes.HasPrefix(b, r.Frames[0]) {
				unknown++
			}
		}
		t.Logf("pieces of up to %d bytes: %d false frames, %d of functions without a length", longest, frames, unknown)
		if unknown > 5 {
			t.Errorf("%d false frames in %d pieces of up to %d bytes", unknown, pieces, longest)
		}
	}
}

// A spool keeps states on the disk: those of the version before are read.
func TestStateOfVersion2(t *testing.T) {
	old := append([]byte{2, 3}, make([]byte, 20)...)
	old = append(old, 3, 0, 0, 99, 255) // three borders
	d, want := modbus.New(9600, 11), modbus.New(9600, 11)
	if err := d.Restore(old); err != nil {
		t.Fatal(err)
	}
	state := append([]byte{3, 3}, make([]byte, 20+64)...)
	for _, at := range []int{0, 99, 255} {
		state[22+at/8] |= 1 << (at % 8)
	}
	if err := want.Restore(state); err != nil || !bytes.Equal(d.State(), state) || !bytes.Equal(want.State(), state) {
		t.Errorf("%v: state % X, want % X", err, d.State(), state)
	}
}
