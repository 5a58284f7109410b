package archive

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// The sheet before the last is kept, and both are whole.
func TestLastSheetButOneIsKept(t *testing.T) {
	dir := t.TempDir()
	for _, end := range []string{"one", "two", "three"} {
		if err := (&StartSheet{End: end}).Save(dir, false); err != nil {
			t.Fatal(err)
		}
	}
	last, err := readStart(filepath.Join(dir, currentFile))
	before, beforeErr := readStart(filepath.Join(dir, beforeFile))
	if err := errors.Join(err, beforeErr); err != nil {
		t.Fatal(err)
	}
	if last.End != "three" || before.End != "two" {
		t.Errorf("last %q, before %q", last.End, before.End)
	}
}

// A line that a power cut has torn spoils neither what stands before it nor what comes behind it.
func TestTornLineOfTheHistory(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, HistoryFile)
	since := int64(0)
	keep := func(end string) {
		since++
		if err := (&StartSheet{End: end, Sheet: ledger.NewSheet(0, since, nil)}).Keep(dir); err != nil {
			t.Fatal(err)
		}
	}
	keep("one")
	keep("torn")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, torn := range [][]byte{b[:len(b)-10], append(b[:len(b)-10:len(b)-10], make([]byte, 10)...)} {
		if err := os.WriteFile(path, torn, 0o600); err != nil {
			t.Fatal(err)
		}
		keep("two")
		if b, err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
		var ends []string
		err := EachStart(bytes.NewReader(b), func(s StartSheet) error { ends = append(ends, s.End); return nil })
		if err == nil || !strings.Contains(err.Error(), "line 2") || strings.Join(ends, " ") != "one two" {
			t.Errorf("read %v, %v; want one and two, and line 2 named", ends, err)
		}
	}
}

func TestWithin(t *testing.T) {
	for name, want := range map[string]bool{
		"plant": true, "plant/10.0.0.7": true, "plant/10.0.0.7/2": true, "plant-2": false, "plan": false,
		"other/plant": false,
	} {
		if Within(name, "plant") != want {
			t.Errorf("%s is within plant: %v", name, !want)
		}
	}
	if Within(Peer("plant", "10.0.0.70"), Peer("plant", "10.0.0.7")) {
		t.Error("an address is taken for one that begins alike")
	}
}

func TestAddressOf(t *testing.T) {
	for name, want := range map[string]string{
		"plant": "plant", "plant/10.0.0.7": "plant/10.0.0.7", "plant/10.0.0.7/2": "plant/10.0.0.7",
		"plant/fe80::1/12": "plant/fe80::1",
	} {
		if got := AddressOf(name); got != want {
			t.Errorf("the address of %s is %s, want %s", name, got, want)
		}
	}
}

// Quarantined bytes that a power cut, or a sync that failed, has taken are not kept any more: the
// sheet counted them for good.
func TestTakeBackOfTheQuarantine(t *testing.T) {
	dir := t.TempDir()
	fs, err := seglog.Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	log, err := seglog.Open(seglog.Config{FS: fs, SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	streams, err := LoadStreams(dir)
	if err != nil {
		t.Fatal(err)
	}
	waste, err := streams.Number(Stream{Source: "a", Frame: "tally128", Quarantine: true})
	if err != nil {
		t.Fatal(err)
	}
	for offset := range uint64(3) { // of five that there were
		if _, err := log.Append(waste, 1, Quarantined(10*offset, make([]byte, 10))); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Sync(); err != nil {
		t.Fatal(err)
	}
	for name, u := range map[string]Span{
		"all":            {First: 1, Last: 5, Waste: 50},
		"the end":        {First: 3, Last: 5, Waste: 30},
		"what was taken": {First: 4, Last: 5, Waste: 20},
	} {
		s := &StartSheet{LogStored: 5, Unsynced: map[string]Span{"a": u}}
		s.Sheet.Ports = []ledger.Port{{ID: "a", Bytes: ledger.Bytes{Read: 60, Resync: 60, Quarantined: 50}}}
		if lost, err := s.TakeBack(log, streams, 3); lost != 0 || err != nil {
			t.Errorf("%s: %d frames lost, %v; want none", name, lost, err)
		}
		if y := s.Sheet.Ports[0].Bytes; y.Quarantined != 30 || y.Resync != 60 {
			t.Errorf("%s: %+v; want 30 of 60 bytes kept", name, y)
		}
	}
}

// Frames that a power cut has taken are in flight again, and nothing else of the account changes.
func TestTakeBackCountsNothingTwice(t *testing.T) {
	dir := t.TempDir()
	fs, err := seglog.Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	log, err := seglog.Open(seglog.Config{FS: fs, SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	streams, err := LoadStreams(dir)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := streams.Number(Stream{Source: "a", Frame: "tally128"})
	if err != nil {
		t.Fatal(err)
	}
	for _, number := range []uint64{0, 1, 2, 6, 7, 9} {
		var b [tally128.Size]byte
		tally128.Encode(b[:], tally128.Header{Device: 1, Epoch: 1, Seq: number}, nil)
		if _, err := log.Append(stream, 1, b[:]); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Sync(); err != nil {
		t.Fatal(err)
	}
	at := func(last uint64) map[string][]ledger.Position {
		return map[string][]ledger.Position{"a": {{Device: 1, Epoch: 1, Last: last}}}
	}
	s := &StartSheet{LogStored: 20, Positions: at(23), Unsynced: map[string]Span{"a": {First: 3, Last: 20, N: 18}}}
	s.Sheet.Ports = []ledger.Port{{
		ID:     "a",
		Frames: ledger.Frames{OK: 20, Stored: 20, Durable: 2, Missing: 4, MissingUnseen: 4},
	}}
	if lost, err := s.TakeBack(log, streams, 6); lost != 14 || err != nil {
		t.Errorf("%d frames lost, %v; want 14", lost, err)
	}
	if _, err := s.Replay(log, streams, nil); err != nil {
		t.Fatal(err)
	}
	if f := s.Sheet.Ports[0].Frames; f.Missing != 4 || f.Stored != 6 || f.InFlight != 14 ||
		s.Positions["a"][0].Last != 23 {
		t.Errorf("%+v, the numbers go on behind %d", f, s.Positions["a"][0].Last)
	}
	// So is it where the source is leaving, and has another account.
	s = &StartSheet{LogStored: 20, Positions: at(23), Unsynced: map[string]Span{"a": {First: 3, Last: 20, N: 18}}}
	s.Sheet.Ports = []ledger.Port{{ID: "a", Frames: ledger.Frames{OK: 5, Stored: 5}}}
	s.Sheet.Leaving = []ledger.Port{{ID: "a", Frames: ledger.Frames{OK: 15, Stored: 15, Durable: 2}}}
	if lost, err := s.TakeBack(log, streams, 6); lost != 14 || err != nil {
		t.Errorf("leaving: %d frames lost, %v; want 14", lost, err)
	}
	now, left := s.Sheet.Ports[0].Frames, s.Sheet.Leaving[0].Frames
	if now.InFlight+left.InFlight != 14 || now.Stored+left.Stored != 6 || left.Stored < left.Durable {
		t.Errorf("leaving: %+v and %+v; want 14 of both in flight", now, left)
	}
	// The log failed with all of them in its hands: they are below the numbers that the sheet
	// knows, and no device that counts anew.
	s = &StartSheet{Positions: at(9)}
	s.Sheet.Ports = []ledger.Port{{ID: "a", Frames: ledger.Frames{
		OK: 6, Missing: 4, MissingUnseen: 4, Dropped: map[string]uint64{CauseLogFailed: 6},
	}}}
	if _, err := s.Replay(log, streams, nil); err != nil {
		t.Fatal(err)
	}
	if f := s.Sheet.Ports[0].Frames; f.Missing != 4 || f.Restarts != 0 || f.Stored != 6 || len(f.Dropped) > 0 {
		t.Errorf("%+v; want 4 missing, 6 stored", f)
	}
	// The same with half of them of a source that was leaving.
	half := func() ledger.Frames {
		return ledger.Frames{OK: 3, Dropped: map[string]uint64{CauseLogFailed: 3}}
	}
	s = &StartSheet{Positions: at(9)}
	s.Sheet.Ports = []ledger.Port{{ID: "a", Frames: half()}}
	s.Sheet.Leaving = []ledger.Port{{ID: "a", Frames: half()}}
	if _, err := s.Replay(log, streams, nil); err != nil {
		t.Fatal(err)
	}
	for _, p := range s.accounts() {
		if f := p.Frames; f.Stored != 3 || len(f.Dropped) > 0 {
			t.Errorf("leaving: %+v; want 3 stored", f)
		}
	}
}

// A torn sheet takes the place of no good one: when the next one is torn, too, the one before both
// serves.
func TestTornSheetTakesNoGoodOnesPlace(t *testing.T) {
	dir := t.TempDir()
	save := func(n uint64) {
		t.Helper()
		if err := (&StartSheet{LogStored: n}).Save(dir, false); err != nil {
			t.Fatal(err)
		}
	}
	tear := func() {
		t.Helper()
		if err := os.Truncate(filepath.Join(dir, currentFile), 5); err != nil {
			t.Fatal(err)
		}
	}
	save(1)
	save(2)
	tear()
	if aside, err := SetTornAside(dir); err != nil || aside == "" {
		t.Fatalf("%q, %v", aside, err)
	}
	if aside, err := SetTornAside(dir); err != nil || aside != "" {
		t.Fatalf("again: %q, %v", aside, err)
	}
	save(3)
	tear()
	s, err := LoadStart(dir, slog.New(slog.DiscardHandler))
	if err != nil || s.LogStored != 1 {
		t.Fatalf("%+v, %v; want the first sheet", s, err)
	}
}

// A start that has left its memory, and is not gone on with, has lost what waited in connections,
// and in files.
func TestSettleNamesWhatWaited(t *testing.T) {
	s := StartSheet{
		Left: "stopped on request", Waiting: map[string]uint64{"net": 300, "gone": 7},
		Sheet: ledger.Sheet{Ports: []ledger.Port{
			{ID: "net", Unread: map[string]uint64{CauseStopped: 5}, Spilled: 200},
			{ID: "other", Bytes: ledger.Bytes{Read: 9, Framed: 4, Resync: 2, Partial: 3}},
		}, Leaving: []ledger.Port{{ID: "net"}, {ID: "gone"}}},
	}
	was := s.Sheet.Judge()
	s.Sheet.Verdict = &was
	s.Settle()
	if p := s.Sheet.Ports; s.End != "stopped on request" || s.Left != "" || p[0].Unread[CauseStopped] != 305 ||
		p[0].Spilled > 0 || p[1].Unread != nil {
		t.Errorf("%+v", s)
	}
	if b := s.Sheet.Ports[1].Bytes; b.Resync != 5 || b.Partial != 0 {
		t.Errorf("a frame was cut: %+v", b)
	}
	if p := s.Sheet.Leaving; p[0].Unread != nil || p[1].Unread[CauseStopped] != 7 {
		t.Errorf("the accounts of sources that leave: %+v", p)
	}
	if s.Sheet.Verdict.Level != ledger.Bad {
		t.Errorf("the verdict is %+v", s.Sheet.Verdict)
	}
	goes := StartSheet{Waiting: map[string]uint64{"net": 300}, Sheet: ledger.Sheet{Ports: []ledger.Port{{ID: "net"}}}}
	if goes.Settle(); goes.Sheet.Ports[0].Unread != nil {
		t.Errorf("of one that has not left: %+v", goes)
	}
}

// A stop that is killed behind the line of the history leaves the sheet of a second before: what
// only that has, and the next start needs, is not lost with it.
func TestEndedKeepsWhatTheHistoryHasNot(t *testing.T) {
	dir := t.TempDir()
	kept := StartSheet{
		End: "stopped", Sheet: ledger.NewSheet(9, 7, nil), ReadTo: map[string]ledger.Time{"a": 8},
		Away: map[string]Absence{"b": {Since: 5, Why: "out"}},
	}
	if err := kept.Keep(dir); err != nil {
		t.Fatal(err)
	}
	left := &StartSheet{
		Sheet: ledger.NewSheet(8, 7, nil), Troubles: []Trouble{{Kind: "disk_full"}},
		Unsent: map[string][]json.RawMessage{"webhook": {json.RawMessage(`{}`)}},
	}
	s := left.Ended(dir)
	if s.End != kept.End || s.ReadTo["a"] != 8 || s.Away["b"] != kept.Away["b"] {
		t.Errorf("%+v; want what the history has", s)
	}
	if len(s.Troubles) != 1 || len(s.Unsent["webhook"]) != 1 {
		t.Errorf("troubles %+v, unsent %v; want those of the sheet", s.Troubles, s.Unsent)
	}
}
