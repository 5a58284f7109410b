package archive

import (
	"maps"
	"slices"
	"testing"

	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// killedWith is a log of four records of 10 bytes of a source without numbers, and the table of its
// streams.
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
		appendRecord(t, log, stream, at+1, "123456789\n")
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
			sheet: StartSheet{LogStored: 0, Waiting: waiting}, ports: line(3), dropped: []uint64{0}, unread: 40,
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
