package recorder

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/ledger"
)

// tempo is when the frames of a source are due. The device counts slots of one interval each, and
// sends a frame in each of them but those that it leaves out.
type tempo struct {
	interval, tolerance time.Duration // interval 0: none is due
	silence             time.Duration // 0: it may be silent for ever
	leaves, late        int           // slots of a hundred that are left out; frames of a hundred that come late
	origin              time.Time
	slot                int64
	behind              bool // the frame of this slot comes late
}

// newTempo draws what a source expects, and how its device keeps to it.
func newTempo(rng *rand.Rand, kind string) (t tempo) {
	if rng.IntN(2) == 0 {
		t.silence = pick(rng, 300*time.Millisecond, time.Second, 3*time.Second)
	}
	// numbers need no rhythm; a chunk may be half of what was sent
	if kind == "tally128" || kind == "raw" || rng.IntN(2) > 0 {
		return t
	}
	t.interval = pick(rng, 20*time.Millisecond, 50*time.Millisecond, 200*time.Millisecond, time.Second)
	t.tolerance = t.interval * pick[time.Duration](rng, 0, 20, 50) / 100
	t.silence = t.interval * pick[time.Duration](rng, 2, 5, 10, 40)
	t.leaves, t.late = pick(rng, 0, 0, 10, 20), pick(rng, 0, 0, 5)
	return t
}

// configure writes it into the configuration of its source.
func (t *tempo) configure(c *config.Source) {
	c.SilentAfter = t.silence
	if t.interval > 0 {
		c.Expect = &config.Expect{Interval: t.interval, Tolerance: fmt.Sprintf("%d%%", 100*t.tolerance/t.interval)}
	}
}

// keepTime waits for the next slot in which the device sends. What has passed meanwhile is left
// out.
func (f *feeder) keepTime() { f.sleep(time.Until(f.nextSlot())) }

// nextSlot is when the next frame is sent.
func (f *feeder) nextSlot() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := &f.tempo
	if t.origin.IsZero() {
		t.origin = time.Now()
	}
	t.slot = max(t.slot+1, int64((time.Since(t.origin)+t.interval-1)/t.interval))
	for f.rng.IntN(100) < t.leaves {
		t.slot++
	}
	due := t.origin.Add(time.Duration(t.slot) * t.interval)
	after := t.behind // one that comes behind a late one is in time to the moment
	switch t.behind = !after && f.rng.IntN(100) < t.late; {
	case t.behind:
		due = due.Add(t.interval * time.Duration(55+f.rng.IntN(40)) / 100)
	case t.tolerance > 0 && !after:
		due = due.Add(time.Duration(f.rng.Int64N(int64(t.tolerance / 2))))
	}
	return due
}

// upset notes that something may have begun a rhythm anew, or have kept frames back.
func (s *stage) upset(from, to time.Time) {
	s.upsets = append(s.upsets, [2]time.Time{from, to.Add(300 * time.Millisecond)})
}

func (s *stage) isUpset(from, to time.Time) bool {
	return slices.ContainsFunc(s.upsets, func(w [2]time.Time) bool { return from.Before(w[1]) && w[0].Before(to) })
}

// span is at least and at most how many.
type span struct{ least, most uint64 }

func (n *span) add(k uint64, sure bool) {
	n.most += k
	if sure {
		n.least += k
	}
}

func (n *span) has(k uint64) bool { return n.least <= k && k <= n.most }

// absences is how many frames did not come when they were due, and how often the source was silent:
// between two frames that were read from one opening of the port.
func (s *stage) absences(f *feeder) (missing, silences span) {
	for _, w := range f.wires() {
		var before *sentFrame
		var last, whole readMark // of what came before, and of what came undamaged
		doubt := false           // whether one came in between
		var heard []time.Time
		lastLate := func() { // one that is late is missing until the next one comes
			if before != nil && before.late {
				missing.add(1, false)
			}
		}
		for _, e := range f.frames {
			if e.w != w {
				continue
			}
			m, ok := e.readBy()
			if !ok || !e.certain() || e.isCut() || e.swallowed {
				doubt = true
				continue
			}
			same := before != nil && w.sameOpening(last, m)
			if same || before != nil && w.opensAt(m.at) {
				gap, left := m.at.Sub(last.at), uint64(max(0, e.slot-before.slot-1))
				sure := same && !doubt && !s.isUpset(last.at, m.at) && !s.isUnsaved(m) &&
					!w.waited(last.at, f.tempo.interval)
				if before.late && (!sure || left > 0) { // it was one that is missing, and may have stayed one
					missing.add(1, false)
					sure = false
				}
				const edge = 20 * time.Millisecond
				// Noise is no frame, nor is damage behind damage: the books may count over it.
				noisy, over := f.tempo.interval == 0 && !(e.valid && before.valid),
					m.at.Sub(whole.at) > f.tempo.silence-edge
				switch near := (gap - f.tempo.silence).Abs() < edge; {
				case f.tempo.silence > 0 && near, !sure && gap > f.tempo.silence:
					missing.add(left, false)
					silences.add(1, false)
				case f.tempo.silence > 0 && gap > f.tempo.silence: // two are one, among frames that are held back
					silences.add(1, sure && !noisy && (f.harm == 0 || w.mayHold == 0))
				case f.tempo.silence > 0 && noisy && over:
					silences.add(1, false)
					fallthrough
				default:
					missing.add(left, sure)
				}
			} else {
				lastLate()
			}
			if before, last, doubt = e, m, false; e.valid {
				whole = m
			}
			heard = append(heard, m.at)
		}
		lastLate()
		silences.add(w.silentEnds(heard, f.tempo.silence), false)
	}
	if f.tempo.interval == 0 {
		missing = span{}
	}
	if f.tempo.silence == 0 {
		silences = span{}
	}
	return missing, silences
}

// Two silences with noise alone between them may be one to the books, and noise with a short pause
// on either side may be in one.
func TestSilencesAroundNoise(t *testing.T) {
	for _, c := range []struct {
		ms          [3]int // when a frame, noise, and a frame are read
		valid       bool   // it is no noise
		least, most uint64
	}{
		{[3]int{0, 200, 400}, true, 0, 0},
		{[3]int{0, 200, 400}, false, 0, 1},
		{[3]int{0, 100, 200}, false, 0, 0},
		{[3]int{0, 1000, 2000}, true, 2, 2},
		{[3]int{0, 1000, 2000}, false, 0, 2},
	} {
		began := time.Now().Add(time.Hour) // the end of the wire, which is now, says nothing
		f := &feeder{tempo: tempo{silence: 300 * time.Millisecond}}
		w := &wire{accepted: 30, opens: []time.Time{began}}
		for i, ms := range c.ms {
			f.frames = append(f.frames,
				&sentFrame{w: w, at: uint64(10 * i), data: make([]byte, 10), valid: i != 1 || c.valid})
			w.reads = append(w.reads,
				readMark{end: uint64(10 * (i + 1)), at: began.Add(time.Duration(ms) * time.Millisecond)})
		}
		if _, n := (&stage{}).absences(f); n != (span{c.least, c.most}) {
			t.Errorf("%v, noise %v: %d to %d silences, want %d to %d", c.ms, !c.valid, n.least, n.most, c.least, c.most)
		}
	}
}

// silentEnds is how often the wire was open for longer than that before the first frame of an
// opening was read, or behind its last one: when exactly it was closed is not known here.
func (w *wire) silentEnds(heard []time.Time, silence time.Duration) (n uint64) {
	for i, from := range w.opens {
		to, last := time.Now(), from
		if i+1 < len(w.opens) {
			to = w.opens[i+1]
		}
		for _, at := range heard {
			if at.Before(from) || !at.Before(to) {
				continue
			}
			if last == from && at.Sub(from) > silence {
				n++
			}
			last = at
		}
		if to.Sub(last) > silence {
			n++
		}
	}
	return n
}

// waited reports whether what was read at a time had waited for a place in a hall, and came in no
// rhythm of that interval.
func (w *wire) waited(at time.Time, interval time.Duration) bool {
	atOnce := 20 * time.Millisecond
	if interval > 0 {
		atOnce = min(atOnce, interval/4)
	}
	return !w.begun.IsZero() && w.begun.Sub(w.made) >= atOnce && at.Sub(w.begun) < atOnce
}

// sameOpening reports whether two readings were of one opening of the wire.
func (w *wire) sameOpening(a, b readMark) bool {
	return a.life == b.life &&
		!slices.ContainsFunc(w.opens, func(at time.Time) bool { return at.After(a.at) && !at.After(b.at) })
}

// opensAt reports whether the wire was opened at the moment of a reading: that may have been the
// last one of the opening before.
func (w *wire) opensAt(read time.Time) bool {
	return slices.ContainsFunc(w.opens, func(at time.Time) bool { return read.Sub(at).Abs() < time.Millisecond })
}

// tempoLaw holds what the books say of frames that were due, and of silences, against what the
// device did.
func (s *stage) tempoLaw(f *feeder, a *books) {
	missing, silences := s.absences(f)
	s.dues += missing.least
	if !missing.has(a.byTime) {
		s.complain("%s: %d to %d frames did not come when they were due, the books name %d", f.id, missing.least,
			missing.most, a.byTime)
	}
	if !silences.has(a.silences) {
		s.complain("%s: it was silent %d to %d times, the books name %d", f.id, silences.least, silences.most,
			a.silences)
	}
	if bad := a.levels.bad["missing_by_time"]; missing.least > 0 && bad == 0 || missing.most == 0 && bad > 0 {
		s.complain("%s: %d verdicts are bad by missing_by_time, over %d to %d", f.id, bad, missing.least, missing.most)
	}
}

// levelOfSilences holds the verdict of this moment against which sources are silent now.
func (s *stage) levelOfSilences() {
	sheet, now := s.r.Sheet(), time.Now()
	for _, f := range s.feeders {
		at := slices.IndexFunc(sheet.Ports, func(p ledger.Port) bool { return p.ID == f.id })
		if at < 0 || sheet.Ports[at].State != ledger.StateOpen || f.tempo.silence == 0 && f.tempo.interval == 0 {
			continue
		}
		told := slices.ContainsFunc(sheet.Verdict.Reasons,
			func(r ledger.Reason) bool { return r.Source == f.id && r.Kind == "silent" })
		quiet := now.Sub(f.e.lastRead())
		const slack = 300 * time.Millisecond // a framing may wait for a pause
		switch {
		case told && quiet < f.tempo.silence && !s.isUpset(now.Add(-f.tempo.silence-time.Second), now) && f.harm == 0:
			s.complain("%s: it was heard %v ago, and is silent by the verdict, after %v", f.id, quiet, f.tempo.silence)
		case !told && quiet >= f.tempo.silence+slack && !s.isUpset(now.Add(-f.tempo.silence-slack), now):
			s.complain("%s: it is silent for %v, and the verdict does not tell, after %v; %s", f.id, quiet,
				f.tempo.silence, sheet.Verdict.Text)
		default:
			s.moments++
		}
		if told && sheet.Verdict.Level == ledger.Good {
			s.complain("%s is silent, and the verdict is good", f.id)
		}
	}
}

// lastRead is when bytes of an endpoint were read last, or a wire of it was opened.
func (e *endpoint) lastRead() (last time.Time) {
	e.k.mu.Lock()
	defer e.k.mu.Unlock()
	for _, w := range e.wires {
		if n := len(w.reads); n > 0 && w.reads[n-1].at.After(last) {
			last = w.reads[n-1].at
		}
		if n := len(w.opens); n > 0 && w.opens[n-1].After(last) {
			last = w.opens[n-1]
		}
	}
	return last
}

// hush has the devices send nothing for a while.
func hush(s *stage) {
	s.calm(true)
	for range 1 + s.rng.IntN(60) {
		if s.wait(100 * time.Millisecond); !s.failing() {
			s.levelOfSilences()
		}
	}
	s.calm(false)
}
