package length

import (
	"time"

	"github.com/tallywheel/tallywheel/frame"
)

// Silence is the pause at which frames are looked for that stand behind a false length.
const Silence = 50 * time.Millisecond

// Patience is how long a frame is waited for, whatever stands behind its beginning.
const Patience = 10 * time.Second

// Silence is [Silence], and 0 without a check: a pause means nothing then.
func (d *Decoder) Silence() time.Duration {
	if d.cfg.Check == frame.NoCheck {
		return 0
	}
	return Silence
}

// Patience is [Patience], and 0 without a check.
func (d *Decoder) Patience() time.Duration {
	if d.cfg.Check == frame.NoCheck {
		return 0
	}
	return Patience
}

// Pause implements [frame.Patient]: whoever does not know for how long the bytes are held gives no
// frame up.
func (d *Decoder) Pause(view []byte, sink frame.Sink) int { return d.Wait(view, 0, 0, sink) }

// Wait implements [frame.Holding]. A frame that is held for Patience is given up where frames stand
// behind its beginning, up to the last byte: two, or one if the line has been silent for Patience.
func (d *Decoder) Wait(view []byte, silent, held time.Duration, sink frame.Sink) int {
	at := d.Decode(view, sink)
	if at > 0 || held < Patience || d.cfg.Check == frame.NoCheck {
		return at
	}
	want := uint16(2)
	if silent >= Patience {
		want = 1
	}
	n := d.run(view, want)
	if n == 0 {
		return 0
	}
	d.Break(view[:n], frame.Silence, sink)
	return n + d.Decode(view[n:], sink)
}

// run is the first place behind the front of b from which on all is frames, and as many as are
// wanted; 0 if there is none. From the end on, each byte is looked at once as the beginning of a
// frame, and a check value is only computed where frames stand from the end of that frame on.
func (d *Decoder) run(b []byte, want uint16) (place int) {
	if len(b) == 0 {
		return 0
	}
	frames := make([]uint16, len(b)+1) // that stand from a place on, up to the end; 0: something else does
	for at := len(b) - d.cfg.Prefix; at > 0; at-- {
		n, ok := d.size(b[at:])
		end := at + n
		if ok && end <= len(b) && (end == len(b) || frames[end] > 0) && d.cfg.Check.OK(b[at+d.cfg.Prefix:end]) {
			if frames[at] = frames[end] + 1; frames[at] >= want {
				place = at
			}
		}
	}
	return place
}
