package stranger

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// The books, as far as the law reads them.
type (
	startSheet struct {
		End   string `json:"end"`
		Sheet sheet  `json:"sheet"`
	}
	status struct {
		Verdict string `json:"verdict"`
		Good    bool   `json:"good"`
		Level   string `json:"level"`
		Reasons []struct {
			Level, Source, Kind string
			Count               uint64
		} `json:"reasons"`
		Processes []struct {
			Role string
			PID  int
		} `json:"processes"`
		Sheet sheet `json:"sheet"`
	}
	sheet struct {
		Balanced bool        `json:"balanced"`
		Ports    []portSheet `json:"ports"`
	}
	portSheet struct {
		ID    string `json:"id"`
		State string `json:"state"`
		Bytes struct {
			Read, Framed, Resync, Partial, Quarantined uint64
		} `json:"bytes"`
		Frames struct {
			OK, Corrupt, Missing, Stored, Forgotten uint64
			MissingByTime                           uint64 `json:"missing_by_time"`
			InFlight                                uint64 `json:"in_flight"`
			Dropped                                 map[string]uint64
		} `json:"frames"`
		Kernel *struct {
			BufferOverrun *uint64 `json:"buffer_overrun"`
		} `json:"kernel"`
		Unread     map[string]uint64
		Unbalanced []string
		Outages    []struct{ Cause string }
	}
)

// ports is a source and its peers.
func (s *sheet) ports(id string) (all []portSheet) {
	for _, p := range s.Ports {
		if p.ID == id || strings.HasPrefix(p.ID, id+"/") {
			all = append(all, p)
		}
	}
	return all
}

// truth is what the feeder knows.
type truth struct {
	Wires []struct {
		Written, Acked uint64
		End            string
	}
	Frames []sentFrame
}

type sentFrame struct {
	Wire           int    // -1: refused by the kernel
	At             uint64 // place in the wire
	Valid          bool
	Device, Number uint64
	Time           float64
	Data           string // hexadecimal
	bytes          []byte
	certain        bool // all of it has been acknowledged
	stored         bool
}

// readTruth takes it from the feeder.
func (s *stage) readTruth() (tr truth) {
	s.t.Helper()
	b, err := os.ReadFile(s.feeder.truth)
	if err == nil {
		err = json.Unmarshal(b, &tr)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return tr
}

// account is everything that the books of all starts name, together.
type account struct {
	read, framed, resync, quarantined                     uint64 // bytes
	corrupt, missing, dropped, unread, overrun, forgotten uint64
	notRunning                                            bool
}

func (s *stage) command(args ...string) []byte {
	s.t.Helper()
	var out, talk bytes.Buffer
	c := exec.Command(testenv.Binary(s.t), append(args, "--dir", s.data)...)
	c.Stdout, c.Stderr = &out, &talk
	if err := c.Run(); err != nil {
		s.t.Errorf("tallywheel %s: %v: %s%s",
			strings.Join(args, " "), err, tail(out.String(), 500), tail(talk.String(), 500))
	}
	return out.Bytes()
}

// judge holds the books and the log against the truth. Each complaint is something unexplained.
func (s *stage) judge(tr truth) (complaints []string) {
	j := &judgement{stage: s, truth: tr}
	s.command("log", "verify")
	j.prepare()
	j.match(j.records())
	j.readBooks()
	j.frames()
	if !s.situation.lossy {
		j.bytes()
	}
	j.verdicts()
	j.levels()
	j.rhythm()
	if len(j.complaints) > 0 {
		j.complain("the account: %+v; %d frames made, %d certain, %d stored",
			j.account, len(j.truth.Frames), j.certain, j.stored)
	}
	return j.complaints
}

type judgement struct {
	*stage
	truth       truth
	account     account
	complaints  []string
	lost        []*sentFrame // acknowledged, valid, not stored
	gaps        uint64       // numbers that the log lacks
	spoilt, cut int          // frames that came damaged, and that came in part
	spoiltBytes uint64
	// frames of a line that a stop may still have cut in two: what follows is read when it is
	// opened again
	halves         int
	pieces         [][]byte // what is stored of raw blocks that are not stored whole
	delivered      uint64   // bytes
	certain        int
	stored         int
	storedBytes    uint64
	frameByContent map[string]*sentFrame
}

func (j *judgement) complain(format string, args ...any) {
	if len(j.complaints) < 12 {
		j.complaints = append(j.complaints, fmt.Sprintf(format, args...))
	}
}

func (j *judgement) prepare() {
	j.frameByContent = map[string]*sentFrame{}
	if j.carrier == "pty" {
		j.halves = len(j.starts) - 1 + j.reopened
	}
	for n, w := range j.truth.Wires {
		j.delivered += w.Acked
		if w.End == "HANGS" {
			j.complain("connection %d was never ended by the recorder: a hang", n)
		}
	}
	for i := range j.truth.Frames {
		f := &j.truth.Frames[i]
		f.bytes, _ = hex.DecodeString(f.Data)
		end := f.At + uint64(len(f.bytes))
		if f.Wire >= 0 {
			acked := j.truth.Wires[f.Wire].Acked
			f.certain = end <= acked
			switch {
			case f.certain && !f.Valid:
				j.spoilt++
				j.spoiltBytes += uint64(len(f.bytes))
			case f.certain:
				j.certain++
			case f.At < acked:
				j.cut++
			}
		}
		if f.Valid {
			if j.frameByContent[string(f.bytes)] != nil {
				j.complain("the feeder has made a frame twice: %x", f.bytes)
			}
			j.frameByContent[string(f.bytes)] = f
		}
	}
}

// match matches what is stored with what was sent.
func (j *judgement) match(records [][]byte) {
	last := map[int]uint64{} // place in a wire
	var strange [][]byte
	for _, data := range records {
		f := j.frameByContent[string(data)]
		switch {
		case f == nil && j.situation.lossy && j.isEnd(data): // its front was in the hands of one that was killed
			continue
		case f == nil:
			strange = append(strange, data)
			continue
		case f.stored:
			j.complain("stored twice: frame at %d of connection %d", f.At, f.Wire)
			continue
		case f.Wire < 0:
			j.complain("stored, though its datagram was refused: %x", data[:min(len(data), 60)])
		case last[f.Wire] > f.At:
			j.complain("stored out of order: the frame at %d of connection %d is behind that at %d",
				f.At, f.Wire, last[f.Wire])
		}
		f.stored, last[f.Wire] = true, f.At
		j.stored++
	}
	for _, data := range strange {
		switch {
		case j.halves > 0 && j.isHalf(data):
			j.halves--
		case j.framing == "raw" && len(data) < blockSize && j.isEnd(data): // the chunk before it was dropped
			j.pieces = append(j.pieces, data)
		default:
			j.complain("stored and never sent: %d bytes %x", len(data), data[:min(len(data), 60)])
		}
	}
}

// records reads the log.
func (j *judgement) records() (all [][]byte) {
	if j.framing == "raw" {
		b := j.command("log", "export", "--format", "raw", "--source", "x")
		j.storedBytes = uint64(len(b))
		return j.blocks(b)
	}
	lines := json.NewDecoder(bytes.NewReader(j.command("log", "export", "--format", "ndjson", "--source", "x")))
	for lines.More() {
		var r struct{ Data []byte }
		if err := lines.Decode(&r); err != nil {
			j.complain("export: %v", err)
			return all
		}
		j.storedBytes += uint64(len(r.Data))
		all = append(all, r.Data)
	}
	return all
}

// blockSize is the size of the feeder's raw blocks, in bytes.
const blockSize = 48

// blocks finds the feeder's blocks in raw bytes. What is in none must be a piece of one: a block is
// cut off where its connection ends, and where a chunk ends that is stored while the next one is
// dropped, or the other way round.
func (j *judgement) blocks(b []byte) (all [][]byte) {
	const head = "\xfeRAW"
	for len(b) > 0 {
		if len(b) >= blockSize && j.frameByContent[string(b[:blockSize])] != nil {
			all, b = append(all, b[:blockSize]), b[blockSize:]
			continue
		}
		n := bytes.Index(b[1:], []byte(head)) + 1
		if n == 0 {
			n = len(b)
		}
		if !j.isCut(b[:n]) {
			all = append(all, b[:n]) // an end, or never sent
		}
		b = b[n:]
	}
	return all
}

// isCut reports whether b is the front of a block, and then perhaps the end of one, and keeps both.
func (j *judgement) isCut(b []byte) bool {
	for n := min(len(b), blockSize-1); n > 0; n-- {
		front, end := b[:n], b[n:]
		if len(end) < blockSize && j.isFront(front) && (len(end) == 0 || j.isEnd(end)) {
			j.pieces = append(j.pieces, front, end)
			return true
		}
	}
	return false
}

func (j *judgement) isFront(b []byte) bool {
	return slices.ContainsFunc(j.truth.Frames, func(f sentFrame) bool { return bytes.HasPrefix(f.bytes, b) })
}

// isEnd reports whether b is the end of a frame, as one has it that begins to read in the middle.
func (j *judgement) isEnd(b []byte) bool {
	return slices.ContainsFunc(j.truth.Frames, func(f sentFrame) bool { return bytes.HasSuffix(f.bytes, b) })
}

// isHalf reports whether b is the end of a frame of which nothing else is stored: a line that was
// cut in two is a line.
func (j *judgement) isHalf(b []byte) bool {
	for i := range j.truth.Frames {
		if f := &j.truth.Frames[i]; f.Valid && f.certain && !f.stored && bytes.HasSuffix(f.bytes, b) {
			f.stored = true
			return true
		}
	}
	return false
}

// readBooks adds up the sheets of all starts.
func (j *judgement) readBooks() {
	lines := json.NewDecoder(bytes.NewReader(j.command("log", "sheets", "--json")))
	sheets := 0
	for lines.More() {
		var s startSheet
		if err := lines.Decode(&s); err != nil {
			j.complain("sheets: %v", err)
			return
		}
		sheets++
		if !s.Sheet.Balanced {
			j.complain("a sheet does not balance: %+v", s)
		}
		for _, p := range s.Sheet.ports("x") {
			j.add(p, strings.HasPrefix(s.End, "killed"))
		}
	}
	if sheets == 0 {
		j.complain("there is no sheet")
	}
	if len(j.starts) > 1 && !j.situation.erased && !j.account.notRunning {
		j.complain("%d starts, and no outage says that the recorder was not running", len(j.starts))
	}
}

// add adds what one sheet says of one port.
func (j *judgement) add(p portSheet, killed bool) {
	a := &j.account
	a.read += p.Bytes.Read
	a.framed += p.Bytes.Framed
	a.resync += p.Bytes.Resync
	a.quarantined += p.Bytes.Quarantined
	a.corrupt += p.Frames.Corrupt
	a.missing += p.Frames.Missing
	a.forgotten += p.Frames.Forgotten
	for _, n := range p.Frames.Dropped {
		a.dropped += n
	}
	for _, n := range p.Unread {
		a.unread += n
	}
	if p.Kernel != nil && p.Kernel.BufferOverrun != nil && j.carrier == "udp" {
		a.overrun += *p.Kernel.BufferOverrun
	}
	for _, o := range p.Outages {
		a.notRunning = a.notRunning || strings.HasPrefix(o.Cause, "the recorder was not running")
	}
	if !killed && (p.Frames.InFlight > 0 || p.Bytes.Partial > 0) {
		j.complain("%s: %d frames are in flight and %d bytes partial when all is over",
			p.ID, p.Frames.InFlight, p.Bytes.Partial)
	}
}

// framesOfDatagram is the most that the feeder sends in one.
const framesOfDatagram = 4

// frames holds what is lost against what is named.
func (j *judgement) frames() {
	for i := range j.truth.Frames {
		if f := &j.truth.Frames[i]; f.Valid && f.certain && !f.stored {
			if j.situation.lossy {
				if !j.inTheDark(f.Time) {
					j.complain("lost, and not when nobody recorded: %d bytes sent at %.3f; dark: %v",
						len(f.bytes), f.Time, j.dark)
				}
				if j.situation.erased {
					continue
				}
			}
			j.lost = append(j.lost, f)
		}
	}
	a := j.account
	if j.framing == "tally128" {
		j.numbers()
		return
	}
	lost := uint64(len(j.lost))
	switch {
	case a.missing > 0:
		j.complain("%d are missing of a framing that does not number them", a.missing)
	case a.dropped > lost:
		j.complain("%d frames are dropped by the books, %d are not in the log: false losses", a.dropped, lost)
	case j.situation.lossy || a.dropped == lost:
	case a.corrupt > uint64(j.spoilt) && lost <= a.dropped+uint64(j.halves):
	case j.framing == "raw": // its frames are chunks of any number of blocks: bytes will tell
	case a.overrun > 0 && a.dropped+a.overrun <= lost && lost <= a.dropped+framesOfDatagram*a.overrun:
	case a.unread > 0 && j.bytesOf(j.lost) <= a.unread:
	default:
		j.complain("%d frames lost, %d of them named", lost, a.dropped)
		j.examples()
	}
}

// numbers holds the numbers that the log lacks against those that the books call missing or
// dropped.
func (j *judgement) numbers() {
	type span struct{ first, last, stored uint64 }
	spans := map[uint64]*span{}
	for i := range j.truth.Frames {
		if f := &j.truth.Frames[i]; f.stored {
			p := spans[f.Device]
			if p == nil {
				p = &span{first: f.Number}
				spans[f.Device] = p
			}
			p.last = f.Number
			p.stored++
		}
	}
	for _, p := range spans {
		j.gaps += p.last - p.first + 1 - p.stored
	}
	var outside uint64 // no stored number is behind them, or before: they can only have been dropped
	for _, f := range j.lost {
		if p := spans[f.Device]; p == nil || f.Number < p.first || f.Number > p.last {
			outside++
		}
	}
	a, want := j.account, j.gaps+outside
	named := a.missing + a.dropped
	unnumbered := a.unread > 0 || a.overrun > 0 || j.situation.lossy // may explain those outside
	if named == want || named < want && want-named <= outside && unnumbered {
		return
	}
	j.complain("%d numbers are not in the log, %d of them at its ends; the books name %d missing and %d dropped",
		want, outside, a.missing, a.dropped)
	j.examples()
}

// examples shows some of what is lost.
func (j *judgement) examples() {
	for _, f := range j.lost[:min(3, len(j.lost))] {
		j.complain("… lost: device %d frame %d, %d bytes at %d of connection %d, sent at %.3f: %x",
			f.Device, f.Number, len(f.bytes), f.At, f.Wire, f.Time, f.bytes[:min(40, len(f.bytes))])
	}
}

func (j *judgement) inTheDark(at float64) bool {
	when := time.UnixMicro(int64(at * 1e6))
	return slices.ContainsFunc(j.dark, func(w window) bool { return when.After(w.from) && when.Before(w.to) })
}

// bytesOfPieces is how much is stored of raw blocks that are lost, at the most: a piece of a few
// bytes may be another block's.
func (j *judgement) bytesOfPieces() (n uint64) {
	for _, piece := range j.pieces {
		if slices.ContainsFunc(j.lost, func(f *sentFrame) bool {
			return bytes.HasPrefix(f.bytes, piece) || bytes.HasSuffix(f.bytes, piece)
		}) {
			n += uint64(len(piece))
		}
	}
	return n
}

func (j *judgement) bytesOf(frames []*sentFrame) (n uint64) {
	for _, f := range frames {
		n += uint64(len(f.bytes))
	}
	return n
}

// bytes holds what was acknowledged against what was read, byte for byte.
func (j *judgement) bytes() {
	a := j.account
	booked := a.read
	if j.carrier != "pty" { // what waits in a line stays there for the next start, or for the feeder
		booked += a.unread
	}
	want, most := j.delivered, j.delivered
	if a.overrun > 0 {
		want -= j.bytesOf(j.lost) + j.spoiltBytes
	}
	if booked < want || booked > most {
		j.complain("%d bytes were acknowledged, %d are in the books: %d unexplained",
			j.delivered, booked, int64(j.delivered)-int64(booked))
	}
	dropped, lost := a.framed-j.storedBytes, j.bytesOf(j.lost)
	least := lost - min(lost, j.bytesOfPieces())
	unsure := a.unread+a.overrun > 0 || j.halves > 0 && a.corrupt > uint64(j.spoilt)
	if dropped > lost || a.dropped == 0 && dropped != 0 || !unsure && dropped < least {
		j.complain("%d bytes framed, %d stored; %d frames of %d bytes are lost, %d named",
			a.framed, j.storedBytes, len(j.lost), lost, a.dropped)
	}
	waste := j.command("log", "export", "--format", "raw", "--source", "x", "--quarantine")
	if n := uint64(len(waste)); n != a.quarantined {
		j.complain("%d bytes are quarantined by the books, %d in the log", a.quarantined, n)
	}
	if n := uint64(j.spoilt); j.framing != "tally128" && a.corrupt < n && a.overrun == 0 && a.unread == 0 {
		j.complain("%d frames came damaged, the books have seen %d", n, a.corrupt)
	}
}

// lostFrames is what a verdict says over a loss: others have "nothing lost since".
var lostFrames = regexp.MustCompile(`[:;] lost since `)

// verdicts: none that is green over a loss, none that says loss where there was none.
func (j *judgement) verdicts() {
	text := string(j.command("log", "sheets"))
	green, clean := true, true
	for line := range strings.Lines(text) {
		clean = clean && !lostFrames.MatchString(line)
		green = green && strings.Contains(line, "; good: ")
	}
	a := j.account
	bad := j.gaps > 0 || a.overrun > 0 || a.unread > 0 && j.carrier != "pty" ||
		len(j.lost)+j.spoilt > 0 && !j.situation.lossy // the sheet of a kill is of the last second
	if bad && green {
		j.complain("the verdict is green over %d lost frames, %d numbers, %d damaged, %d datagrams, %d bytes: %s",
			len(j.lost), j.gaps, j.spoilt, a.overrun, a.unread, text)
	}
	if !bad && !clean && !j.expects() {
		j.complain("a verdict says that frames were lost, and none was: %s", text)
	}
}
