package replay

import (
	"slices"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/seglog"
)

// piece is a record on its way to the wire.
type piece struct {
	at      int64
	seq     uint64
	data    []byte // its own
	waste   bool   // it is in no frame
	offset  uint64 // where it stood in what was read; seglog.NoOffset
	missing uint64 // bytes that stood before it, and are in no record
}

// weave brings frames and quarantined bytes into the order that they had on the wire. The log has
// each of the two in that order, and bytes before the frame that follows them; but while the log is
// slow frames wait, and bytes do not, so bytes may be before frames that were read before them.
//
// What is known: bytes have their offset in what was read, frames their length, and where the
// recorder noted it their offset, too; and nothing that was read later has an earlier time, unless
// the clock was set. So bytes wait for frames that were read before them, and for those read with
// them that fit before them.
type weave struct {
	next  uint64 // offset of the next byte
	knows bool   // … is known
	held  []piece
	bytes int // of them
	out   []piece
}

// maxHeld bounds the bytes that wait for frames that may be lost.
const maxHeld = 1 << 20

// put takes the next record of the log, and returns what can be played. That is valid until the
// next call.
func (w *weave) put(rec seglog.Record, of *archive.Stream) []piece {
	w.out = w.out[:0]
	p := piece{
		at: rec.Time, seq: rec.Seq, data: slices.Clone(archive.Payload(of, rec.Data)), offset: rec.Offset,
		waste: of.Quarantine,
	}
	if offset, ok := archive.WasteOffset(of, rec.Data); ok {
		p.offset = offset
	}
	if p.waste {
		w.held, w.bytes = append(w.held, p), w.bytes+len(p.data)
		w.release(func(h piece) bool { return w.isNext(h) || w.bytes > maxHeld })
		return w.out
	}
	w.release(func(h piece) bool {
		switch {
		case w.isNext(h) || h.at < p.at:
			return true
		case h.at > p.at:
			return false
		case p.offset != seglog.NoOffset:
			return h.offset < p.offset
		}
		return w.next+uint64(len(p.data)) > h.offset // the frame does not fit before it
	})
	w.add(p)
	w.release(w.isNext)
	return w.out
}

// isNext reports whether bytes follow what was played. Those before it are of another start, whose
// offsets begin anew.
func (w *weave) isNext(h piece) bool { return !w.knows || h.offset <= w.next }

// rest is what is left behind the last record.
func (w *weave) rest() []piece {
	w.out = w.out[:0]
	w.release(func(piece) bool { return true })
	return w.out
}

// release plays what is held, the oldest first, as long as it may be.
func (w *weave) release(may func(piece) bool) {
	for len(w.held) > 0 && may(w.held[0]) {
		w.bytes -= len(w.held[0].data)
		w.add(w.held[0])
		w.held = w.held[1:]
	}
}

func (w *weave) add(p piece) {
	if p.offset != seglog.NoOffset {
		if w.knows && p.offset > w.next {
			p.missing = p.offset - w.next
		}
		w.next, w.knows = p.offset, true
	}
	w.next += uint64(len(p.data))
	w.out = append(w.out, p)
}
