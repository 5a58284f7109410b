package tally128

import (
	"encoding/binary"
	"errors"
)

// The state of a decoder: version u8, shadow u8, device u32, epoch u32, sequence u64;
// little-endian. shadow is how many bytes further a damaged frame that was counted still reaches,
// and the numbers are those of the last good frame.
const (
	stateVersion = 1
	stateSize    = 18
)

// State implements [frame.Stateful].
func (d *Decoder) State() []byte {
	shadow := uint8(0)
	if d.shadowEnd > d.pos {
		shadow = uint8(d.shadowEnd - d.pos) // at most Size
	}
	b := append(make([]byte, 0, stateSize), stateVersion, shadow)
	b = binary.LittleEndian.AppendUint32(b, d.last.Device)
	b = binary.LittleEndian.AppendUint32(b, d.last.Epoch)
	return binary.LittleEndian.AppendUint64(b, d.last.Seq)
}

// Restore implements [frame.Stateful].
func (d *Decoder) Restore(b []byte) error {
	if len(b) != stateSize || b[0] != stateVersion || b[1] > Size {
		return errors.New("not the state of a tally128 decoder")
	}
	d.pos, d.shadowEnd = 0, uint64(b[1])
	d.last.Device = binary.LittleEndian.Uint32(b[2:])
	d.last.Epoch = binary.LittleEndian.Uint32(b[6:])
	d.last.Seq = binary.LittleEndian.Uint64(b[10:])
	return nil
}
