package recorder

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// The law of the scenarios: what the kernel took from a device = what is stored + what the books
// name, by cause, in bytes and in frames; nothing is stored that was not sent, nothing twice,
// everything in its order; no loss is named that is none; every sheet balances; no verdict is green
// over a loss, and none is red without. Where the process was killed, what was read just before is
// in the dark: numbered frames must be named all the same.

// books is everything that the sheets of all starts say of one source.
type books struct {
	read, framed, resync, partial, quarantined   uint64 // bytes
	unread                                       uint64
	corrupt, missing, dropped, stored, forgotten uint64
	late                                         uint64 // of the missing ones of other starts
	valid                                        uint64
	overrun, byTime, silences, refused           uint64
	erased                                       uint64 // records that the log has lost, by what the books say of it
	reach                                        int    // sheets
	green, clean                                 bool
	levels                                       levels
}

// record is a frame that the log has.
type record struct {
	seq  uint64
	data []byte
}

func (s *stage) judge() {
	records, waste := s.readLog()
	accounts := s.readBooks()
	for _, f := range s.feeders {
		if f.visits == nil {
			s.judgeSource(f, accounts[f.id], records[f.id], waste[f.id])
		}
	}
	for _, h := range s.halls {
		s.judgeHall(h, accounts, records, waste)
	}
}

// readLog reads the log as it is when all is over.
func (s *stage) readLog() (frames map[string][]record, waste map[string]uint64) {
	frames, waste = map[string][]record{}, map[string]uint64{}
	streams, err := archive.LoadStreams(s.dir)
	if err != nil {
		s.complain("streams: %v", err)
		return frames, waste
	}
	r := seglog.NewReader(simDisk{s.disk, &diskTrouble{}}, 0)
	defer r.Close()
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return frames, waste
		}
		var gap *seglog.GapError
		if errors.As(err, &gap) {
			continue
		}
		if err != nil {
			s.complain("the log cannot be read: %v", err)
			return frames, waste
		}
		e, ok := streams.By(rec.Stream)
		switch {
		case !ok:
			s.complain("a record of stream %d, which nobody knows", rec.Stream)
		case e.Quarantine:
			waste[e.Source] += uint64(len(rec.Data) - 8)
		default:
			frames[e.Source] = append(frames[e.Source], record{rec.Seq, bytes.Clone(rec.Data)})
		}
	}
}

func (s *stage) readBooks() map[string]*books {
	all := map[string]*books{}
	f, err := os.Open(filepath.Join(s.dir, archive.HistoryFile))
	if err != nil {
		s.complain("no sheets: %v", err)
		return all
	}
	defer f.Close()
	err = archive.EachStart(f, func(start archive.StartSheet) error {
		add := func(ports []ledger.Port) {
			for _, p := range ports {
				a := all[p.ID]
				if a == nil {
					a = &books{green: true, clean: true}
					all[p.ID] = a
				}
				a.add(s, start, p)
			}
		}
		add(start.Sheet.Ports)
		start.Sheet.Recovered = nil // it is told of each source once
		add(start.Sheet.Leaving)    // of a start that was killed meanwhile
		return nil
	})
	if err != nil {
		s.complain("sheets: %v", err)
	}
	return all
}

func (a *books) add(s *stage, start archive.StartSheet, p ledger.Port) {
	killed := strings.HasPrefix(start.End, "killed") || strings.HasPrefix(start.End, "its last sheet could not be read")
	if len(p.Unbalanced) > 0 {
		s.complain("%s: the sheet of %q does not balance: %v", p.ID, start.End, p.Unbalanced)
	}
	// a power cut then took what was stored and not synced
	cut := strings.Contains(start.End, "the log has failed") && len(s.kills) > 0
	if !killed && (p.Frames.InFlight > 0 && !cut || p.Bytes.Partial > 0) {
		s.complain("%s: the sheet of %q has %d frames in flight, %d bytes partial",
			p.ID, start.End, p.Frames.InFlight, p.Bytes.Partial)
	}
	a.reach++
	a.read += p.Bytes.Read
	a.framed += p.Bytes.Framed
	a.resync += p.Bytes.Resync
	a.partial += p.Bytes.Partial
	a.quarantined += p.Bytes.Quarantined
	a.corrupt += p.Frames.Corrupt
	a.missing += p.Frames.Missing
	a.late += p.Frames.Late
	a.stored += p.Frames.Stored
	a.valid += p.Frames.OK
	a.forgotten += p.Frames.Forgotten
	a.byTime += p.Frames.MissingByTime
	a.silences += p.Silences
	for _, n := range p.Frames.Dropped {
		a.dropped += n
	}
	for _, n := range p.Unread {
		a.unread += n
	}
	for _, n := range p.Refused {
		a.refused += n
	}
	if p.Kernel != nil && p.Kernel.BufferOverrun != nil {
		a.overrun += *p.Kernel.BufferOverrun
	}
	if r := start.Sheet.Recovered; r != nil {
		gone, _ := r.Gone()
		a.erased += gone + r.Unsynced
	}
	one := ledger.NewSheet(int64(start.Sheet.At), int64(start.Sheet.Since), []ledger.Port{p})
	one.Recovered = start.Sheet.Recovered
	v := one.Judge()
	a.levels.add(v)
	a.green = a.green && v.Level == ledger.Good
	a.clean = a.clean && v.LostWire.Frames+v.LostHere.Frames == 0
}

// dark reports whether a frame may be lost by a kill without a name: it was read just before, or
// never.
func (s *stage) dark(f *sentFrame) bool {
	m, ok := f.readBy()
	if !ok {
		return true
	}
	for _, k := range s.kills {
		if k.unsaves(m) || k.all && m.life < k.life || m.life == k.life && (m.at.After(k.from) || f.w.heldBack(f, k)) {
			return true
		}
	}
	return false
}

// isUnsaved reports whether what was read may be in no sheet any more.
func (s *stage) isUnsaved(m readMark) bool {
	return slices.ContainsFunc(s.kills, func(k killed) bool { return k.unsaves(m) })
}

// isUncounted reports whether what was read may be in no sheet: the last one of a process that was
// killed is of its last second, or the disk was in the way. Numbered frames are named all the same.
func (s *stage) isUncounted(m readMark) bool {
	return slices.ContainsFunc(s.kills, func(k killed) bool {
		return m.life == k.life && k.at.Sub(m.at) < 1200*time.Millisecond || k.unsaves(m)
	})
}

// unsaves reports whether what was read may be in no sheet any more, for the newest one is torn.
func (k killed) unsaves(m readMark) bool {
	return k.torn && m.life <= k.life && m.at.After(k.saved)
}

// heldBack reports whether a frame may have been held back, behind a length that is false, until
// the dark before a kill: what was read before that does not reach far enough behind it.
func (w *wire) heldBack(f *sentFrame, k killed) bool {
	end := uint64(0)
	for _, m := range w.reads {
		if m.life == k.life && !m.at.After(k.from) {
			end = m.end
		}
	}
	return f.end()+w.mayHold > end
}

// A frame that was read in the light is in the dark all the same, where its framing may have held
// it back until then.
func TestDarkBehindAFalseLength(t *testing.T) {
	at := time.Now()
	w := &wire{mayHold: 1000, reads: []readMark{
		{100, at, 0},
		{1050, at.Add(time.Second), 0},
		{9000, at.Add(3 * time.Second), 0},
	}}
	s := &stage{kills: []killed{{life: 0, at: at.Add(3 * time.Second), from: at.Add(2 * time.Second)}}}
	for _, c := range []struct {
		from, bytes uint64
		dark        bool
	}{{0, 50, false}, {0, 51, true}, {50, 50, true}, {1040, 10, true}, {1050, 10, true}} {
		if f := (&sentFrame{w: w, at: c.from, data: make([]byte, c.bytes)}); s.dark(f) != c.dark {
			t.Errorf("%d bytes at %d: dark %v, want %v", c.bytes, c.from, !c.dark, c.dark)
		}
	}
}

func (s *stage) judgeSource(f *feeder, a *books, records []record, waste uint64) {
	if a == nil {
		s.complain("%s: no sheet has it", f.id)
		return
	}
	if f.m.kind != "raw" {
		s.match(f, records)
	}
	s.judgeBooks(f, a, records, waste)
}

// judgeBooks holds books against the frames of a source, of which those that are stored are known.
func (s *stage) judgeBooks(f *feeder, a *books, records []record, waste uint64) {
	before := len(s.complaints)
	if a.erased < s.harmed {
		s.complain("%s: somebody took %d records out of the log, the books know of %d", f.id, s.harmed, a.erased)
	}
	s.bytesLaw(f, a, waste)
	switch f.m.kind {
	case "raw":
		s.rawLaw(f, a, records)
	case "tally128":
		s.numbersLaw(f, a)
	default:
		s.framesLaw(f, a)
	}
	s.levelLaw(f, a)
	s.tempoLaw(f, a)
	if len(s.complaints) > before {
		s.complain("%s is %s by %s, %d frames made, %d records; the books: %+v; %d kills, %d starts, %d failures",
			f.id, f.m.kind, f.e.kind, len(f.frames), len(records), *a, len(s.kills), s.starts, s.failures)
	}
}

// wires are those of an endpoint.
func (f *feeder) wires() (all []*wire) {
	seen := map[*wire]bool{}
	for _, s := range f.frames {
		if s.w != nil && !seen[s.w] {
			seen[s.w] = true
			all = append(all, s.w)
		}
	}
	return all
}

// bytesLaw holds bytes that were taken against those in the books.
func (s *stage) bytesLaw(f *feeder, a *books, waste uint64) {
	var taken, inDark, thrown, thrownInDark, killed uint64
	for _, w := range f.wires() {
		taken += w.taken
		for _, g := range w.gone {
			if g.killed {
				killed += g.to - g.from
			} else {
				thrown += g.to - g.from
				if w.e.by != nil && s.isUncounted(g.at) {
					thrownInDark += g.to - g.from
				}
			}
		}
		last := uint64(0)
		for _, m := range w.reads {
			if s.isUncounted(m) {
				inDark += m.end - last
			}
			last = m.end
		}
		if w.accepted != w.taken+w.thrown+uint64(w.held) {
			s.complain("%s: the kernel of the scenario is wrong: %d accepted, %d taken, %d thrown away, %d held",
				f.id, w.accepted, w.taken, w.thrown, w.held)
		}
		if w.held > 0 && w.kind != byLine {
			s.complain("%s: %d bytes are held and the wire is not closed", f.id, w.held)
		}
	}
	if a.read > taken || a.read+inDark < taken {
		s.complain("%s: %d bytes were read, %d are in the books, %d in the dark", f.id, taken, a.read, inDark)
	}
	if f.e.kind != byLine && (a.unread > thrown || a.unread+thrownInDark < thrown) {
		s.complain("%s: %d bytes were thrown away unread, %d are in the books", f.id, thrown, a.unread)
	}
	unsynced := len(s.kills) > 0 && (s.log.Sync == "interval" || s.log.Sync == "never")
	if waste > a.quarantined && len(s.kills)+s.failures == 0 || waste < a.quarantined && a.erased == 0 && !unsynced {
		s.complain("%s: %d bytes are quarantined, %d by the books", f.id, waste, a.quarantined)
	}
}

// match finds for each record the frame that was sent.
func (s *stage) match(f *feeder, records []record) {
	byData := map[string]*sentFrame{}
	for _, e := range f.frames {
		if e.valid && e.w != nil {
			byData[string(e.data)] = e
		}
	}
	last := map[*wire]uint64{}
	for _, r := range records {
		e := byData[string(r.data)]
		// a sum of 8 bits lets one in 256 pass with junk before it
		if at := bytes.LastIndexByte(r.data, '$'); e == nil && at > 0 {
			e = byData[string(r.data[at:])]
		}
		if e == nil && f.m.kind == "slip" { // the end of a frame whose front went with a kill may begin the next one
			e = byData[string(bytes.TrimLeft(r.data, "\xC0"))]
		}
		switch {
		case e == nil && (s.isPart(f, r.data) || f.swallows(r.data)):
		case e == nil:
			s.complain("%s: stored and never sent: %d bytes %x", f.id, len(r.data), r.data[:min(60, len(r.data))])
		case e.stored:
			s.complain("%s: stored twice: device %d frame %d", f.id, e.device, e.number)
		case last[e.w] > e.at:
			s.complain("%s: stored out of order: the frame at %d of wire %d is behind that at %d", f.id, e.at, e.w.n,
				last[e.w])
		default:
			e.stored, last[e.w] = true, e.at
			continue
		}
	}
}

// isPart reports whether b is the end of a frame within which a reading ended.
func (s *stage) isPart(f *feeder, b []byte) bool {
	for _, e := range f.frames {
		if e.w != nil && e.isCut() && bytes.HasSuffix(e.data, b) {
			return true
		}
	}
	return false
}

// swallows reports whether b is a piece of a wire that begins in damage and passes its check by
// chance, as one in 65,536 does, and takes the frames within b for lost: nobody could tell.
func (f *feeder) swallows(b []byte) bool {
	for _, w := range f.wires() {
		sent := make([]byte, w.accepted)
		for _, e := range f.frames {
			if e.w == w && e.at < w.accepted {
				copy(sent[e.at:], e.data)
			}
		}
		at := bytes.Index(sent, b)
		from, to := uint64(at), uint64(at+len(b))
		if at < 0 || !slices.ContainsFunc(f.frames, func(e *sentFrame) bool {
			return e.w == w && (!e.valid || e.isCut()) && e.at <= from && from < e.end()
		}) {
			continue
		}
		for _, e := range f.frames {
			e.swallowed = e.swallowed || e.w == w && e.at < to && e.end() > from
		}
		return true
	}
	return false
}

// seen reports whether the recorder must have taken the frame for a valid one.
func (e *sentFrame) seen() bool {
	if !e.valid || e.w == nil || !e.certain() || e.isCut() || e.swallowed {
		return false
	}
	_, ok := e.readBy()
	return ok
}

// framesLaw holds frames without numbers that are not stored against what the books say was
// dropped.
func (s *stage) framesLaw(f *feeder, a *books) {
	var lost, dark uint64
	for _, e := range f.frames {
		switch {
		case !e.seen() || e.stored:
		case s.dark(e):
			dark++
		default:
			if lost++; lost <= 2 && a.dropped == 0 {
				m, _ := e.readBy()
				s.complain("%s: lost: %d bytes at %d of wire %d, read after %v: %x",
					f.id, len(e.data), e.at, e.w.n, m.at.Sub(s.began), e.data[:min(40, len(e.data))])
			}
		}
	}
	if a.missing > 0 {
		s.complain("%s: %d are missing of frames without numbers", f.id, a.missing)
	}
	if a.dropped < lost || a.dropped > lost+dark {
		s.complain("%s: %d frames are lost and %d in the dark, the books name %d", f.id, lost, dark, a.dropped)
	}
	if lost > 0 && a.green {
		s.complain("%s: the verdict is green over %d lost frames", f.id, lost)
	}
	if missing, _ := s.absences(f); lost+dark+missing.most == 0 && !a.clean {
		s.complain("%s: a verdict says that frames were lost", f.id)
	}
}

// numbersLaw holds the numbers that the log lacks against those that the books call missing or
// dropped.
func (s *stage) numbersLaw(f *feeder, a *books) {
	type span struct {
		known       bool
		first, last uint64 // in the order in which the device counted, from where it began
	}
	type both struct {
		sure, most span
		stored     uint64
	}
	widen := func(p *span, n uint64) {
		if !p.known {
			*p = span{true, n, n}
		}
		if int64(n-p.first) < 0 {
			p.first = n
		}
		if int64(n-p.last) > 0 {
			p.last = n
		}
	}
	devices := map[uint32]*both{}
	for _, e := range f.frames {
		if !e.seen() && !e.stored {
			continue
		}
		d := devices[e.device]
		if d == nil {
			d = &both{}
			devices[e.device] = d
		}
		widen(&d.most, e.number)
		if e.stored {
			d.stored++
		}
		if e.stored || !s.dark(e) {
			widen(&d.sure, e.number)
		}
	}
	least, most := uint64(0), uint64(0)
	for _, d := range devices {
		if d.sure.known {
			least += d.sure.last - d.sure.first + 1 - d.stored
		}
		most += d.most.last - d.most.first + 1 - d.stored
	}
	if a.erased > 0 { // what was missing among records that are gone is named by both starts
		most *= 2
	}
	named := a.missing - a.late + a.dropped
	if named+a.erased < least || named > most {
		s.complain("%s: %d to %d numbers are not in the log; the books name %d missing and %d dropped",
			f.id, least, most, a.missing-a.late, a.dropped)
	}
	if least > a.erased && a.green {
		s.complain("%s: the verdict is green over %d lost numbers", f.id, least)
	}
	if most == 0 && !a.clean && a.late == 0 { // one that came late was missing in the start before
		s.complain("%s: a verdict says that frames were lost", f.id)
	}
}

// rawLaw holds the bytes of the log against those that were read: chunks have no borders of their
// own.
func (s *stage) rawLaw(f *feeder, a *books, records []record) {
	var all []byte
	for _, r := range records {
		all = append(all, r.data...)
	}
	if a.missing+a.corrupt+a.resync > 0 {
		s.complain("%s: raw bytes are missing, damaged or skipped", f.id)
	}
	if a.dropped > 0 || len(s.kills) > 0 {
		return
	}
	if uint64(len(all)) != a.framed {
		s.complain("%s: %d bytes framed, %d stored, nothing dropped", f.id, a.framed, len(all))
	}
	at := map[*wire]int{}
	for _, e := range f.frames { // the frames that came whole are there in their order
		if !e.seen() {
			continue
		}
		n := bytes.Index(all[at[e.w]:], e.data)
		if n < 0 {
			s.complain("%s: the bytes at %d of wire %d are not stored", f.id, e.at, e.w.n)
			return
		}
		at[e.w] += n
	}
}
