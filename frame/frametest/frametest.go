// Package frametest holds what every framing must keep, as checks that tests and fuzz targets share.
package frametest

import (
	"bytes"
	"fmt"
	"math/rand/v2"

	"github.com/tallywheel/tallywheel/frame"
)

// Record is a [frame.Sink] that writes down what it is told.
type Record struct {
	Frames  [][]byte
	Numbers []uint64 // sequence number of each frame, where the framing has them
	Harm    int      // calls of Damaged
	Skipped []byte
	Order   []byte // every byte classified, in order
}

// Frame implements [frame.Sink].
func (r *Record) Frame(f *frame.Frame) {
	r.Frames = append(r.Frames, bytes.Clone(f.Data))
	r.Numbers = append(r.Numbers, f.Seq)
	r.Order = append(r.Order, f.Data...)
}

// Damaged implements [frame.Sink].
func (r *Record) Damaged() { r.Harm++ }

// Skip implements [frame.Sink].
func (r *Record) Skip(b []byte) {
	r.Skipped = append(r.Skipped, b...)
	r.Order = append(r.Order, b...)
}

// Feed shows the stream to d cut at random by rng (nil: in one piece) and ends it with Closed.
func Feed(d frame.Decoder, stream []byte, rng *rand.Rand) (*Record, error) {
	r := &Record{}
	done, shown := 0, 0
	for shown < len(stream) {
		n := len(stream) - shown
		if rng != nil {
			n = 1 + rng.IntN(min(n, 1+rng.IntN(300)))
		}
		shown += n
		done += d.Decode(stream[done:shown], r)
		if pending := shown - done; pending > d.Max() {
			return r, fmt.Errorf("%d bytes pending, more than the longest frame (%d)", pending, d.Max())
		}
		if len(r.Order) != done {
			return r, fmt.Errorf("bytes returned by Decode: %d, classified: %d", done, len(r.Order))
		}
	}
	d.Break(stream[done:], frame.Closed, r)
	if !bytes.Equal(r.Order, stream) {
		return r, fmt.Errorf("classified %d bytes of %d, or out of order", len(r.Order), len(stream))
	}
	return r, nil
}

// Check feeds the stream whole and in seeded pieces and reports the first rule that is broken: every byte classified
// once and in order, pending bytes bounded, and the same frames however the stream is cut.
func Check(open func() frame.Decoder, stream []byte, seed uint64) error {
	whole, err := Feed(open(), stream, nil)
	if err != nil {
		return fmt.Errorf("in one piece: %w", err)
	}
	cut, err := Feed(open(), stream, rand.New(rand.NewPCG(seed, 0)))
	if err != nil {
		return fmt.Errorf("in pieces: %w", err)
	}
	switch {
	case len(whole.Frames) != len(cut.Frames):
		return fmt.Errorf("%d frames in one piece, %d in pieces", len(whole.Frames), len(cut.Frames))
	case whole.Harm != cut.Harm:
		return fmt.Errorf("%d damaged in one piece, %d in pieces", whole.Harm, cut.Harm)
	}
	for i := range whole.Frames {
		if !bytes.Equal(whole.Frames[i], cut.Frames[i]) {
			return fmt.Errorf("frame %d differs: % X in one piece, % X in pieces", i, whole.Frames[i], cut.Frames[i])
		}
	}
	return nil
}
