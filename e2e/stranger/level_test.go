package stranger

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// has reports whether a reason of the source under test, or of a peer of it, is given.
func (st *status) has(kind string) bool {
	for _, r := range st.Reasons {
		if r.Kind == kind && (r.Source == "x" || strings.HasPrefix(r.Source, "x/")) {
			return true
		}
	}
	return false
}

// read is what the source under test has read, in bytes.
func (st *status) read() (n uint64) {
	for _, p := range st.Sheet.ports("x") {
		n += p.Bytes.Read
	}
	return n
}

// lookAtLevel asks for the verdict, at rest once nothing more is read.
func (s *stage) lookAtLevel(rest bool) {
	s.t.Helper()
	var st status
	last, since, looks := uint64(math.MaxUint64), time.Now(), 0
	testenv.Until(s.t, startPatience, "nothing more is read, and the status says so", func() bool {
		st = status{}
		if !s.recorder.get("api/v1/status", &st) {
			return false
		}
		if n := st.read(); n != last {
			last, since, looks = n, time.Now(), 0
		}
		looks++ // a recorder that stands still, as all may on a busy machine, answers none
		return !rest || time.Since(since) > 100*time.Millisecond && looks > 20
	})
	s.level = &st
}

// levels holds the level of the API against what was sent.
func (j *judgement) levels() {
	st := j.level
	if st == nil {
		return
	}
	a := j.account
	lost := j.gaps > 0 || a.dropped+a.overrun > 0 || len(j.lost)+j.spoilt > 0
	// a frame may have come in part
	torn := j.cut > 0 || j.situation.lossy || j.ends || len(j.starts) > 1 || len(j.truth.Wires) > 1
	if (st.Level == "good") != st.Good {
		j.complain("the level is %s, and good is %v", st.Level, st.Good)
	}
	if st.Good && (j.framing != "tally128" || lost) {
		j.complain("the level is good, of %s with %d lost, %d damaged, %d numbers: %s", j.framing, len(j.lost),
			j.spoilt, j.gaps, st.Verdict)
	}
	if st.Level == "bad" && !lost && !torn && !j.expects() && a.unread == 0 {
		j.complain("the level is bad over nothing: %s", st.Verdict)
	}
	whole := len(j.starts) == 1 && j.carrier != "pty" && st.read() == j.delivered // nothing is lost later
	if sure := j.gaps > 0 || a.dropped > 0 || j.spoilt > 0; whole && sure && a.overrun == 0 && st.Level != "bad" {
		j.complain("the level is %s over %d numbers, %d dropped, %d damaged: %s", st.Level, j.gaps, a.dropped, j.spoilt,
			st.Verdict)
	}
}

// The rhythm of a device that keeps one.
const (
	beat      = time.Second
	silent    = 6 * time.Second
	longPause = 3500 * time.Millisecond // the frames of three intervals, or four
)

// rhythm has the device send a frame each second, and the source expect that; one whose frames are
// numbered expects nothing, but may be silent.
func rhythm(s *stage) {
	s.interval, s.cfg.expect = beat, ", silent_after: "+silent.String()
	if s.framing != "tally128" && s.framing != "raw" {
		s.cfg.expect += ", expect: {interval: 1s, tolerance: 50%}"
	}
	s.withFaults = false
}

// expects reports whether the source expects a frame each second.
func (s *stage) expects() bool { return strings.Contains(s.cfg.expect, "expect:") }

// keepRhythm has some frames not come, and then none for long. That none is missing before is what
// the law says, which knows how late each one was.
func keepRhythm(s *stage) {
	said := func(kind string, is bool) func() bool {
		return func() bool {
			var st status
			return s.recorder.get("api/v1/status", &st) && st.has(kind) == is && (!is || st.Level != "good")
		}
	}
	s.goesOn("in its rhythm", livePatience)
	s.goesOn("in its rhythm", livePatience)
	testenv.Until(s.t, startPatience, "it is not silent", said("silent", false))
	if s.paused = s.rng.IntN(3) > 0; s.paused {
		hushed := time.Now()
		s.feeder.command("hush")
		s.pause(longPause, longPause+time.Millisecond)
		s.feeder.command("go")
		s.goesOn("after a pause", livePatience)
		s.long = time.Since(hushed) > silent-beat // there is up to a beat before it
		if s.expects() && !s.long {
			testenv.Until(s.t, startPatience, "the verdict misses what did not come", said("missing_by_time", true))
		}
	}
	s.feeder.command("hush")
	testenv.Until(s.t, silent+startPatience, "the verdict says that it is silent", said("silent", true))
	s.feeder.command("go")
	testenv.Until(s.t, startPatience, "it is silent no more", said("silent", false))
}

// rhythm holds what is missing by time against the times at which frames were sent and were read.
func (j *judgement) rhythm() {
	var named uint64
	if j.level != nil {
		for _, p := range j.level.Sheet.ports("x") {
			named += p.Frames.MissingByTime
		}
	}
	if !j.expects() {
		if named > 0 {
			j.complain("%d frames are missing by time, and none was expected", named)
		}
		return
	}
	if j.level == nil {
		return
	}
	arrived := map[string]time.Time{}
	lines := json.NewDecoder(bytes.NewReader(j.command("log", "export", "--format", "ndjson", "--source", "x")))
	for lines.More() {
		var r struct {
			Data []byte
			Time time.Time
		}
		if err := lines.Decode(&r); err != nil {
			j.complain("export: %v", err)
			return
		}
		arrived[string(r.Data)] = r.Time
	}
	most := uint64(0)
	before := map[int]time.Time{}
	for i := range j.truth.Frames {
		f := &j.truth.Frames[i]
		at, ok := arrived[string(f.bytes)]
		if !ok {
			continue
		}
		if last := before[f.Wire]; !last.IsZero() {
			gap := at.Sub(last)
			left := uint64(max(0, (gap+beat/2)/beat-1))
			if off := (gap - time.Duration(left+1)*beat).Abs(); off > beat/4 {
				j.t.Logf("how many were missing by time is not judged: a frame came %v behind the one before", gap)
				return
			}
			if gap < silent {
				most += left
			}
		}
		before[f.Wire] = at
	}
	if named != most || j.paused != (most > 0) && !j.long && !j.stood() {
		j.complain("%d frames did not come when they were due, the books name %d", most, named)
	}
	if (most > 0) != (j.level.Level == "bad") {
		j.complain("%d frames did not come when they were due: %s", most, j.level.Verdict)
	}
}
