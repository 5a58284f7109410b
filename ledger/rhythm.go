package ledger

import "time"

// Rhythm is when frames are expected, and after how long without one the source is silent.
type Rhythm struct {
	Interval  time.Duration // between two frames; 0: none is expected
	Tolerance time.Duration // a frame that is late by no more than this is in time
	Silence   time.Duration // without a frame for so long the source is silent; 0: it never is
}

// rhythm counts the frames that did not come when they should have. Its times are of a clock that
// nobody sets.
//
// Frames that come together after a gap stand for all of it: a reader that was late misses none. A
// gap within the tolerance is in time, and the rhythm goes on from there. Any other adds to what
// the source is behind, or ahead; each interval that it is behind, rounded, is a frame missing. So
// a frame that is late is none, as long as the next one is not, and a source that is a little too
// slow each time misses as many as it falls behind. Frames that come early are late ones of before,
// and are taken back; of more it is ahead by a quarter of an interval at most. A silence counts as
// that, and as no frame: nobody knows when the device would have sent.
//
// A decoder may hold many frames back behind a length that is false. So a source whose bytes come,
// and are not classified yet, does not fall silent; but once it is silent, a frame alone ends that.
type rhythm struct {
	Rhythm
	last    time.Duration
	heard   time.Duration // last, or when bytes came behind it that may be of a frame
	running bool          // last is the time of a frame, or of the opening
	behind  time.Duration // how late it is since a frame was in time, less what is counted as missing
	owed    uint64        // frames counted as missing since then
}

// arrived takes n frames at a time, and returns by how much the missing ones change, and whether
// they end a silence.
func (r *rhythm) arrived(n uint64, now time.Duration) (missing int64, silent bool) {
	now = max(now, r.last) // bytes may wait from before the source was opened
	gap, running, silent := now-r.last, r.running, r.running && r.isSilent(now)
	r.last, r.heard, r.running = now, now, true
	if !running || r.Interval == 0 || silent {
		r.behind, r.owed = 0, 0
		return 0, silent
	}
	n = min(n, uint64(gap/r.Interval)+r.owed+2) // more make no difference, and might overflow
	off, tolerance := gap-time.Duration(n)*r.Interval, max(r.Tolerance, r.Interval/leastTolerance)
	if off.Abs() <= tolerance {
		r.behind, r.owed = 0, 0
		return 0, false
	}
	r.behind += off
	missing = max(int64(r.behind.Round(r.Interval)/r.Interval), -int64(r.owed))
	r.owed += uint64(missing) // two's complement
	r.behind -= time.Duration(missing) * r.Interval
	if r.owed == 0 {
		if r.behind = max(r.behind, -r.Interval/4); r.behind.Abs() <= tolerance {
			r.behind = 0
		}
	}
	return missing, false
}

func (r *rhythm) isSilent(now time.Duration) bool { return r.Silence > 0 && now-r.heard >= r.Silence }

// leastTolerance is the part of an interval that is in time in any case: no two clocks are the
// same.
const leastTolerance = 100

// Expect makes the book count by time. It comes before the first frame.
func (b *Book) Expect(r Rhythm) { b.rhythm.Rhythm = r }

// Restart makes the time before now, as of a clock that nobody sets, count for no frame: the source
// was opened, or was not read for a while.
func (b *Book) Restart(now time.Duration) {
	b.rhythm.last, b.rhythm.heard, b.rhythm.running, b.rhythm.owed = now, now, false, 0
	b.lastFrame = b.now
}

// Arrived posts that n frames, valid or damaged, came at a time of that clock.
func (b *Book) Arrived(n uint64, now time.Duration) {
	if n == 0 || b.rhythm.Interval == 0 && b.rhythm.Silence == 0 {
		return
	}
	missing, silent := b.rhythm.arrived(n, now)
	b.frames.MissingByTime += uint64(missing) // two's complement: it never takes back more than it has given
	if missing > 0 {
		b.ack.owedIn = b.ack.generation
		b.losses.missed(lateTime, b.now, uint64(missing))
	} else if missing < 0 {
		b.losses.cameLast(lateTime, uint64(-missing))
		b.takeBack(b.ack.owedIn, uint64(-missing), missingByTime)
	}
	if silent {
		b.silences++
	}
	b.lastFrame = b.now
}

// Gone posts that the device has gone at a time of that clock: a silence ends with it.
func (b *Book) Gone(now time.Duration) {
	if b.rhythm.running && b.rhythm.isSilent(now) {
		b.silences++
	}
	b.rhythm.running = false
}

// Partial posts that bytes came at a time of that clock, which may be of frames and are not
// classified yet.
func (b *Book) Partial(now time.Duration) {
	if !b.rhythm.isSilent(now) {
		b.rhythm.heard = now
	}
}

// NoPartial posts that bytes which have come since the last frame are of none.
func (b *Book) NoPartial() { b.rhythm.heard = b.rhythm.last }

// SilentSince is when the last frame of a source that is silent came, or it was opened; 0: it is
// not silent.
func (b *Book) SilentSince(now time.Duration) Time {
	if b.rhythm.isSilent(now) {
		return Time(b.lastFrame)
	}
	return 0
}
