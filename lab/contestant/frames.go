package contestant

import (
	"encoding/binary"
	"time"
)

// The frame of the serial experiments: tally128, with the time at which it was due to be sent.
const (
	frameSize = 128
	frameTime = 20
	frameCRC  = 126

	maxLatencies = 1 << 20 // kept
)

// Frames takes tally128 frames out of a stream as a program does that trusts the line: by their
// first two bytes, without the CRC.
type Frames struct {
	N uint64 // frames

	// Of N latencies, ns from the moment a frame was due to be sent until it was taken, each with a
	// chance of 1 in every, which is a power of two; the longest is that of all.
	kept    []int64
	every   uint64 // 0 is 1
	longest int64
	random  uint64
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

// Count counts one frame. Where its latency is longer than any before, or below 0, it is looked
// whether the frame is whole: the time of a damaged one is none. There are few such.
func (f *Frames) Count(frame []byte, now int64) {
	f.N++
	late := now - int64(binary.LittleEndian.Uint64(frame[frameTime:]))
	if late > f.longest || late < 0 {
		if !whole(frame) {
			return
		}
		f.longest = max(f.longest, late)
	}
	if f.every > 1 && f.chance()%f.every != 0 {
		return
	}
	if f.kept = append(f.kept, late); len(f.kept) == maxLatencies {
		f.thin()
	}
}

// thin forgets every second of the latencies that are kept, by chance.
func (f *Frames) thin() {
	left := f.kept[:0]
	for _, late := range f.kept {
		if f.chance()%2 == 0 {
			left = append(left, late)
		}
	}
	f.kept, f.every = left, 2*max(1, f.every)
}

// chance is the next of some numbers by Marsaglia's xorshift.
func (f *Frames) chance() uint64 {
	x := f.random
	if x == 0 {
		x = 88172645463325252
	}
	x ^= x << 13
	x ^= x >> 7
	x ^= x << 17
	f.random = x
	return x >> 11 // the low ones are the weakest
}

// Add adds what another reader has found, which may be changed by that.
func (f *Frames) Add(other Frames) {
	f.N += other.N
	f.longest = max(f.longest, other.longest)
	for max(1, f.every) < max(1, other.every) {
		f.thin()
	}
	for max(1, other.every) < max(1, f.every) {
		other.thin()
	}
	for f.kept = append(f.kept, other.kept...); len(f.kept) >= maxLatencies; {
		f.thin()
	}
}

// Latencies are the figures of the latencies.
func (f *Frames) Latencies() []Value {
	v := Latencies(f.kept)
	if len(v) > 0 {
		v[len(v)-1].V = float64(f.longest) / 1e3
	}
	return v
}

// whole reports whether a frame has its CRC-16/MODBUS.
func whole(frame []byte) bool {
	crc := uint16(0xFFFF)
	for _, b := range frame[:frameCRC] {
		crc = crc>>8 ^ modbus[byte(crc)^b]
	}
	return crc == binary.LittleEndian.Uint16(frame[frameCRC:])
}

// modbus is the table of the CRC.
var modbus = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i)
		for range 8 {
			if crc&1 == 1 {
				crc = crc>>1 ^ 0xA001
			} else {
				crc >>= 1
			}
		}
		table[i] = crc
	}
	return table
}()
