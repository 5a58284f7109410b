package archive

import (
	"maps"
	"slices"
	"testing"

	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// killedWith is a log of four records of 10 bytes of a source without numbers, each behind 3 bytes
// on the wire that are in no record, and the table of its streams.
func killedWith(t *testing.T) (*seglog.Log, *Streams) {
	t.Helper()
	dir, err := seglog.Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log, err := seglog.Open(seglog.Config{FS: dir, SegmentBytes: 16 << 10, MinFree: -1})
	if err != nil {
		t.Fatal(err)
	}
	streams, err := LoadStreams(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	stream, err := streams.Number(Stream{Source: "a", Frame: "line"})
	if err != nil {
		t.Fatal(err)
	}
	for at := range int64(4) {
		if _, err := log.AppendAt(stream, at+1, uint64(13*at+3), []byte("123456789\n")); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return log, streams
}

// What a start that was killed had read, and the log has not, is lost where no number tells it: of
// what its last sheet calls in flight the frames that are not behind that sheet, then of the bytes
// that waited those that are in no record there.
func TestWhatAKillTakesOutOfMemoryIsNamed(t *testing.T) {
	log, streams := killedWith(t)
	of := func(proof ledger.Proof, inFlight uint64) ledger.Port {
		return ledger.Port{
			ID: "a", Proof: proof, Spilled: 7,
			Frames: ledger.Frames{OK: inFlight + 1, Stored: 1, InFlight: inFlight},
		}
	}
	line := func(inFlight uint64) []ledger.Port { return []ledger.Port{of(ledger.ProofNone, inFlight)} }
	waiting := map[string]uint64{"a": 50}
	from := func(at uint64) map[string]uint64 { return map[string]uint64{"a": at} }
	for name, c := range map[string]struct {
		sheet          StartSheet
		ports, leaving []ledger.Port
		goOn           []string
		dropped        []uint64 // of the ports, then of those that leave
		unread         uint64
	}{
		"nothing came behind": {sheet: StartSheet{LogStored: 4}, ports: line(3), dropped: []uint64{3}},
		"some came behind":    {sheet: StartSheet{LogStored: 2}, ports: line(3), dropped: []uint64{1}},
		"all came behind":     {sheet: StartSheet{LogStored: 1}, ports: line(3), dropped: []uint64{0}},
		"it has checks": {
			sheet: StartSheet{LogStored: 4}, ports: []ledger.Port{of(ledger.ProofChecks, 3)}, dropped: []uint64{3},
		},
		"numbers tell": {
			sheet: StartSheet{LogStored: 4, Waiting: waiting}, ports: []ledger.Port{of(ledger.ProofNumbers, 3)},
			dropped: []uint64{0},
		},
		"it goes on": {
			sheet: StartSheet{LogStored: 4, Waiting: waiting}, ports: line(3), goOn: []string{"a"},
			dropped: []uint64{0},
		},
		"it has ended": {sheet: StartSheet{LogStored: 4, End: "stopped"}, ports: line(3), dropped: []uint64{0}},
		"its last sheet is torn": {
			sheet: StartSheet{LogStored: 4, End: causeOlder, Uncertain: true}, ports: line(3), dropped: []uint64{3},
		},
		"bytes waited, too": {
			sheet: StartSheet{LogStored: 4, Waiting: waiting}, ports: line(3), dropped: []uint64{3}, unread: 50,
		},
		"some of those came": {
			sheet: StartSheet{LogStored: 0, Waiting: waiting, WaitingFrom: from(39)}, ports: line(3),
			dropped: []uint64{0}, unread: 37,
		},
		"all of those came": {
			sheet: StartSheet{LogStored: 1, Waiting: map[string]uint64{"a": 26}, WaitingFrom: from(26)}, ports: line(1),
			dropped: []uint64{0},
		},
		"half a frame was not among those": {
			sheet: StartSheet{LogStored: 3, Waiting: waiting, WaitingFrom: from(45)}, ports: line(0),
			dropped: []uint64{0}, unread: 43,
		},
		"nothing of those came": {
			sheet: StartSheet{LogStored: 1, Waiting: waiting, WaitingFrom: from(52)}, ports: line(3),
			dropped: []uint64{0}, unread: 50,
		},
		"some of those came, and nobody knows how many": {
			sheet: StartSheet{LogStored: 0, Waiting: waiting}, ports: line(3), dropped: []uint64{0},
		},
		"a power cut took two that were stored": {
			sheet: StartSheet{LogStored: 4, takenBack: map[string]uint64{"a": 2}}, ports: line(3),
			dropped: []uint64{1},
		},
		"an older one leaves": {
			sheet: StartSheet{LogStored: 2}, ports: line(3), leaving: line(3), dropped: []uint64{3, 1},
		},
		"a numbered one leaves": {
			sheet: StartSheet{LogStored: 3}, ports: line(3), leaving: []ledger.Port{of(ledger.ProofNumbers, 3)},
			dropped: []uint64{3, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.sheet
			s.Sheet.At, s.Sheet.Ports, s.Sheet.Leaving = 77, c.ports, c.leaving
			if _, err := s.Replay(log, streams, nil, c.goOn...); err != nil {
				t.Fatal(err)
			}
			for i, p := range slices.Concat(s.Sheet.Ports, s.Sheet.Leaving) {
				f := p.Frames
				unread := uint64(0)
				if i == 0 {
					unread = c.unread
				}
				if f.Dropped[CauseByKill] != c.dropped[i] || f.OK != f.Stored+f.InFlight+f.Dropped[CauseByKill] {
					t.Errorf("account %d has %+v; want %d dropped", i, f, c.dropped[i])
				}
				if p.Unread[CauseByKill] != unread || (p.LastLoss == 77) != (c.dropped[i]+unread > 0) {
					t.Errorf("account %d: %v unread, lost last at %d; want %d", i, p.Unread, p.LastLoss, unread)
				}
			}
		})
	}
}

// Records that are gone, or cannot be read, may have had what is not there, the frames before the
// bytes: so much less is named.
func TestWhatMayHaveBeenInTheLogIsNotNamed(t *testing.T) {
	for gone, want := range map[uint64]map[string]uint64{
		0: {CauseByKill: 3}, 2: {CauseByKill: 1}, 3: nil, 4: nil, unread: nil,
	} {
		s := &StartSheet{Waiting: map[string]uint64{"a": 50}}
		s.Sheet.Ports = []ledger.Port{{
			ID: "a", Proof: ledger.ProofNone, Frames: ledger.Frames{OK: 3, InFlight: 3},
		}}
		s.giveUpInHand(s.inHands(nil), gone)
		p := s.Sheet.Ports[0]
		bytes := p.Unread[CauseByKill]
		if !maps.Equal(p.Frames.Dropped, want) || (bytes == 50) != (gone <= 3) {
			t.Errorf("%d records are gone: %v dropped, %v unread; want %v", gone, p.Frames.Dropped, p.Unread, want)
		}
	}
}

// Waste may come to the log before frames that were read before it, and another wire of the source
// begins at 0: nothing is named then that may have come.
func TestWhatCameOutOfOrderIsNotNamed(t *testing.T) {
	frame, waste := Stream{Source: "a"}, Stream{Source: "a", Quarantine: true}
	rec := func(offset uint64, n int) seglog.Record { return seglog.Record{Offset: offset, Data: make([]byte, n)} }
	junk := func(offset uint64, n int) seglog.Record { return rec(offset, n+quarantineHeader) }
	type landing struct {
		of  Stream
		rec seglog.Record
	}
	for name, c := range map[string]struct {
		all           []landing
		frames, bytes uint64
	}{
		"nothing":                  {nil, 2, 50},
		"waste that was shown":     {[]landing{{waste, junk(80, 10)}}, 2, 50},
		"waste that was not":       {[]landing{{waste, junk(110, 10)}}, 2, 30},
		"waste ahead of a frame":   {[]landing{{waste, junk(110, 10)}, {frame, rec(80, 10)}}, 1, 30},
		"more than waited":         {[]landing{{frame, rec(80, 9)}, {frame, rec(90, 9)}, {frame, rec(140, 20)}}, 0, 0},
		"another wire":             {[]landing{{frame, rec(80, 9)}, {frame, rec(90, 9)}, {frame, rec(0, 10)}}, 0, 0},
		"a frame without a place":  {[]landing{{frame, rec(seglog.NoOffset, 10)}}, 1, 50},
		"… and nothing was before": {[]landing{{waste, junk(seglog.NoOffset, 10)}}, 2, 0},
	} {
		h := &inHand{frames: 2, bytes: 50, from: 100}
		for _, l := range c.all {
			h.lands(l.of, l.rec)
		}
		if h.frames != c.frames || h.bytes != c.bytes {
			t.Errorf("%s: %d frames and %d bytes are left, want %d and %d", name, h.frames, h.bytes, c.frames, c.bytes)
		}
	}
}
