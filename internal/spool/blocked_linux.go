package spool

import (
	"encoding/binary"
	"time"

	"github.com/tallywheel/tallywheel/ring"
)

// A spool without room takes no mark that its consumer would come to meanwhile, and what waits in
// front of it may be lost. So that nobody reads, and when nobody read, is noted beside the marks,
// in the spool that is recorded: by who reads, for who records, each of whom may be killed. One
// process at a time notes; any may look.
//
// The time that lasts is in three words. When it is over it goes into a ring of times, where it may
// take the place of the oldest, and then the words are cleared.

// Brief is for how long a device that is not read for want of room is in no outage: the kernel
// holds what comes meanwhile.
const Brief = 100 * time.Millisecond

const (
	timeBytes = 24  // from i64, to i64, cause u64
	leastKept = 64  // times that a new spool has room for
	mostKept  = 256 // times that are in use, where the memory has room for more
)

// Time is one in which nobody read, for there was no room, in ns since 1970.
type Time struct {
	From, To int64  // To is 0 while it lasts
	Why      uint32 // a cause of [Unattended]
}

// kept is how many times the memory has room for.
func (s *Spool) kept() uint64 {
	return min(mostKept, (uint64(len(s.owner))-ownerBytes(s.slots, s.room))/timeBytes)
}

// time is the slot of the time with that number, counted from 0.
func (s *Spool) time(i uint64) []byte {
	at := ownerBytes(s.slots, s.room) + i%s.kept()*timeBytes
	return s.owner[at:][:timeBytes:timeBytes]
}

// Block notes that nothing is read from a time on, ns since 1970, for a cause of [Unattended]. It
// may be called again, with another cause.
func (s *Spool) Block(since int64, why uint32) {
	ring.Uint64(s.owner, blockedAt+16).Store(uint64(why))
	ring.Uint64(s.owner, blockedAt).Store(uint64(since))
}

// Unblock notes that this is over, and how long it has lasted: what was shorter than [Brief] is
// forgotten.
func (s *Spool) Unblock(lasted time.Duration) {
	since, ended := ring.Uint64(s.owner, blockedAt), ring.Uint64(s.owner, endedAt)
	if at, why, ok := s.Blocked(); ok && lasted >= Brief && s.kept() > 0 {
		n := ended.Load()
		slot := s.time(n)
		binary.NativeEndian.PutUint64(slot, uint64(at))
		binary.NativeEndian.PutUint64(slot[8:], uint64(at+int64(lasted)))
		binary.NativeEndian.PutUint64(slot[16:], uint64(why))
		ended.Store(n + 1)
	}
	since.Store(0)
}

// Blocked is since when nothing is read, and why, as Block has noted it last; !ok: it is over.
func (s *Spool) Blocked() (since int64, why uint32, ok bool) {
	ended := ring.Uint64(s.owner, endedAt).Load()
	since = int64(ring.Uint64(s.owner, blockedAt).Load())
	why = uint32(ring.Uint64(s.owner, blockedAt+16).Load())
	if since == 0 || ended > 0 && s.kept() > 0 && s.timeOf(ended-1).From == since { // who noted the end was killed
		return 0, 0, false
	}
	return since, why, true
}

func (s *Spool) timeOf(i uint64) Time {
	b := [timeBytes]byte(s.time(i))
	return Time{
		From: int64(binary.NativeEndian.Uint64(b[0:])), To: int64(binary.NativeEndian.Uint64(b[8:])),
		Why: uint32(binary.NativeEndian.Uint64(b[16:])),
	}
}

// Unread is the times that were over since so many, in order, the oldest of which may be gone, and
// at last the one that lasts, if it has for [Brief]. known is how many are over. Who asks
// while one ends may be told that it lasts; who asks again is told of its end.
func (s *Spool) Unread(from uint64) (times []Time, known uint64) {
	known = ring.Uint64(s.owner, endedAt).Load()
	if most := max(1, s.kept()) - 1; known-from > most { // who notes may be at work on one more
		from = known - min(known, most)
	}
	for ; from < known; from++ {
		times = append(times, s.timeOf(from))
	}
	if since, why, lasts := s.Blocked(); lasts && time.Now().UnixNano()-since >= int64(Brief) {
		times = append(times, Time{From: since, Why: why})
	}
	return times, known
}
