package spool

import "encoding/binary"

// Kind is what a mark says.
type Kind uint32

// The kinds of marks. What A and B are not said to be is 0.
const (
	Chunk   Kind = 1 + iota // bytes of a stream were read: A of them (at least 1), at B by the steady clock, ns
	Message                 // the same, and they are a message of its own, which may be empty: a datagram
	Silent                  // nothing has come for B ns since the bytes before
	Opened                  // the device is open from here on, which it was at B by the steady clock
	// the stream ended, or failed: A is the errno, 0 the end of the stream, or Replaced; at B by
	// the steady clock
	Closed
	Lost // up to B bytes are missing here: A is the cause
	Step // the wall clock was set by B ns, a signed number
	// the device cannot be opened: A is the errno, 0 where there is none, or NotConnected or
	// Connecting
	Absent
	Counted    // the driver's counter A stands at B; the first behind Opened says where it began
	Unattended // nobody read from that time on, for B ns: A is the cause
	Ended      // the producer gave the wire up, in order: nothing follows; at B by the steady clock
	kinds
)

// What [Absent] and [Closed] have where no error of the kernel is the cause.
const (
	NotConnected uint32 = 1<<16 + iota // nobody has connected
	Connecting                         // the other side has not answered yet
	Replaced                           // a newer connection took over
)

// Causes of [Lost].
const (
	Uncertain uint32 = 1 + iota // the producer was killed in a read: so many bytes may have been at the end of it
	Discarded                   // the kernel held so many when the wire was given up, and nobody had time to read them
	Untaken                     // the kernel held so many of a device that the producer could not take
	Spilled                     // they had run over into a file, and could not be read back
)

// Causes of [Lost] from firstRefused on are those of connections which the producer could not take
// when the wire was given up, for want of descriptors: so many as [Mark.Refused] says. Their bytes
// may be 0, for nobody knows.
const firstRefused, mostRefused = 1 << 16, 1<<16 - 1

// RefusedOf is the cause of [Lost] for so many connections, of which it tells 65,535 at most.
func RefusedOf(connections int) uint32 { return uint32(firstRefused + min(connections, mostRefused)) }

// Refused is of how many connections the mark tells that nobody has taken.
func (m Mark) Refused() uint64 {
	if m.Kind != Lost || m.A < firstRefused {
		return 0
	}
	return uint64(m.A - firstRefused)
}

// Causes of [Unattended].
const (
	Killed      uint32 = iota // the producer before was killed, and this one goes on
	NoRoom                    // the spool was full
	Restarted                 // all that work on it were, with what starts them
	SpillFull                 // the spool was full, and so was the file that it runs over into, or its disk
	SpillFailed               // … and that file could not be written
)

// Mark is what the bytes do not say.
type Mark struct {
	At   uint64 // the offset on the wire that it stands behind
	Time int64  // ns since 1970
	Kind Kind
	A    uint32
	B    uint64
}

// read reports whether the mark tells of bytes, as each byte needs one.
func (m Mark) read() bool { return m.Kind == Chunk || m.Kind == Message }

// markBytes is the size of a slot.
const markBytes = 32

func (m Mark) put(slot []byte) {
	binary.NativeEndian.PutUint64(slot, m.At)
	binary.NativeEndian.PutUint64(slot[8:], uint64(m.Time))
	binary.NativeEndian.PutUint32(slot[16:], uint32(m.Kind))
	binary.NativeEndian.PutUint32(slot[20:], m.A)
	binary.NativeEndian.PutUint64(slot[24:], m.B)
}

// markOf reads a slot once, whatever changes there meanwhile.
func markOf(slot []byte) Mark {
	b := [markBytes]byte(slot)
	return Mark{
		At: binary.NativeEndian.Uint64(b[0:]), Time: int64(binary.NativeEndian.Uint64(b[8:])),
		Kind: Kind(binary.NativeEndian.Uint32(b[16:])), A: binary.NativeEndian.Uint32(b[20:]),
		B: binary.NativeEndian.Uint64(b[24:]),
	}
}

// follows reports whether the mark can stand behind one at an offset.
func (m Mark) follows(at uint64) bool {
	n := m.At - at
	switch {
	case m.Kind == 0 || m.Kind >= kinds:
		return false
	case m.read():
		return n == uint64(m.A) && (n > 0 || m.Kind == Message)
	}
	return n == 0
}
