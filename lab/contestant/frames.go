package contestant

import (
	"encoding/binary"
	"time"
)

// The frame of the serial experiments: tally128, with the time at which it was due to be sent.
const (
	frameSize = 128
	frameTime = 20

	maxLatencies = 1 << 20 // kept; more frames than that are only counted
)

// Frames takes tally128 frames out of a stream as a program does that trusts the line: by their
// first two bytes, without the CRC.
type Frames struct {
	N         uint64  // frames
	Latencies []int64 // ns from the moment a frame was due to be sent until it was taken
}

// Take takes the frames at the front of b and returns how many bytes it is done with.
func (f *Frames) Take(b []byte) (done int) {
	now := time.Now().UnixNano()
	for len(b)-done >= frameSize {
		p := b[done:]
		if p[0] != 0xA5 || p[1] != 0x5A {
			done++
			continue
		}
		f.Count(p, now)
		done += frameSize
	}
	return done
}

// Count counts one frame.
func (f *Frames) Count(frame []byte, now int64) {
	f.N++
	if len(f.Latencies) < maxLatencies {
		f.Latencies = append(f.Latencies, now-int64(binary.LittleEndian.Uint64(frame[frameTime:])))
	}
}

// Add adds what another reader has found.
func (f *Frames) Add(other Frames) {
	f.N += other.N
	f.Latencies = append(f.Latencies, other.Latencies...)
}
