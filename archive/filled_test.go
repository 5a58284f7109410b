package archive

import (
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// A number that had come late, and was in flight when the recorder was killed, is missing after
// all, unless the log has it; who goes on takes it for a gap then.
func TestWhatWasFilledAndNotStoredIsMissing(t *testing.T) {
	dir, err := seglog.Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log, streams := numberedLog(t, illFolder{dir, &atomic.Int64{}, &atomic.Int64{}, &atomic.Int64{}}, 30)
	for name, c := range map[string]struct {
		accounts func(*StartSheet) *[]ledger.Port
		filled   []ledger.Gap
		missing  uint64
		left     []ledger.Gap
	}{
		"the log has none": {
			ports,
			[]ledger.Gap{{From: 4, To: 6}, {From: 9, To: 9}},
			4,
			[]ledger.Gap{{From: 2, To: 2}, {From: 4, To: 6}, {From: 9, To: 9}},
		},
		"the log has two": {
			ports,
			[]ledger.Gap{{From: 5, To: 5}, {From: 15, To: 16}},
			1,
			[]ledger.Gap{{From: 2, To: 2}, {From: 5, To: 5}},
		},
		"it is leaving": {
			leaving,
			[]ledger.Gap{{From: 5, To: 5}},
			1,
			[]ledger.Gap{{From: 2, To: 2}, {From: 5, To: 5}},
		},
		"it is damaged": {ports, []ledger.Gap{{From: 5, To: 1 << 60}}, 0, []ledger.Gap{{From: 2, To: 2}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &StartSheet{LogStored: 11} // 10 is the last frame that it knows to be stored
			accounts := c.accounts(s)
			*accounts = []ledger.Port{{ID: "a"}}
			s.Sheet.At = 77
			s.Reach("a", []ledger.Position{{
				Device: 1, Epoch: 1, Last: 25, Gaps: []ledger.Gap{{From: 2, To: 2}},
				Filled: c.filled,
			}}, nil)
			if _, err := s.Replay(log, streams, nil); err != nil {
				t.Fatal(err)
			}
			p := (*accounts)[0]
			if f := p.Frames; f.Missing != c.missing || f.MissingUnseen != c.missing || f.Late != 0 ||
				(p.LastLoss == 77) != (c.missing > 0) {
				t.Errorf("%+v, lost last at %d; want %d missing, and none late", f, p.LastLoss, c.missing)
			}
			at := s.Positions["a"][0]
			slices.SortFunc(at.Gaps, func(a, b ledger.Gap) int { return int(a.From) - int(b.From) })
			if at.Last != 29 || len(at.Filled) != 0 || !slices.Equal(at.Gaps, c.left) {
				t.Errorf("the next start goes on at %+v; want 29, and %+v", at, c.left)
			}
		})
	}
}

// Numbers that were seen and not stored when the recorder was killed are missing where the log goes
// on behind them; those behind all that it has are counted by who goes on there.
func TestWhatWasInFlightAndNotStoredIsMissing(t *testing.T) {
	dir, err := seglog.Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log, streams := logOf(t, illFolder{dir, &atomic.Int64{}, &atomic.Int64{}, &atomic.Int64{}}, 9, 10, 11, 13, 17, 15,
		18)
	for name, c := range map[string]struct {
		last, inFlight uint64
		gaps           []ledger.Gap
		missing        uint64
		left           []ledger.Gap
	}{
		"three are lost": {
			25, 15, nil, 3,
			[]ledger.Gap{{From: 12, To: 12}, {From: 14, To: 14}, {From: 16, To: 16}},
		},
		"one was missing before": {
			25, 14,
			[]ledger.Gap{{From: 16, To: 16}},
			2,
			[]ledger.Gap{{From: 12, To: 12}, {From: 14, To: 14}, {From: 16, To: 16}},
		},
		"two came behind the sheet": {
			16, 6, nil, 3,
			[]ledger.Gap{{From: 12, To: 12}, {From: 14, To: 14}, {From: 16, To: 16}},
		},
		"the sheet says less in flight": {25, 14, nil, 0, nil},
		"another device is ahead": {
			10, 15, nil, 3,
			[]ledger.Gap{{From: 12, To: 12}, {From: 14, To: 14}, {From: 16, To: 16}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &StartSheet{LogStored: 2}
			s.Sheet.Ports = []ledger.Port{{ID: "a", Frames: ledger.Frames{InFlight: c.inFlight}}}
			s.Reach("a", []ledger.Position{{Device: 1, Epoch: 1, Last: 10, Gaps: c.gaps}},
				[]ledger.Position{{Device: 1, Epoch: 1, Last: c.last}})
			if _, err := s.Replay(log, streams, nil); err != nil {
				t.Fatal(err)
			}
			if f := s.Sheet.Ports[0].Frames; f.Missing != c.missing || f.MissingUnseen != c.missing || f.Late != 0 {
				t.Errorf("%+v; want %d missing, and none late", f, c.missing)
			}
			at := s.Positions["a"][0]
			slices.SortFunc(at.Gaps, func(a, b ledger.Gap) int { return int(a.From) - int(b.From) })
			if at.Last != 18 || !slices.Equal(at.Gaps, c.left) {
				t.Errorf("the next start goes on at %+v; want 18, and %+v", at, c.left)
			}
		})
	}
}

func ports(s *StartSheet) *[]ledger.Port   { return &s.Sheet.Ports }
func leaving(s *StartSheet) *[]ledger.Port { return &s.Sheet.Leaving }

// Numbers below the first one that the sheet knows of a stream, as an older connection brings them,
// are no older ones: what they leave out is missing. Where the stream was there before this start,
// they are.
func TestAStreamBeginsBelowWhatTheSheetKnows(t *testing.T) {
	dir, err := seglog.Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log, streams := logOf(t, illFolder{dir, &atomic.Int64{}, &atomic.Int64{}, &atomic.Int64{}}, 20, 24, 25, 10, 12, 11,
		15, 26)
	first := uint64(20)
	for name, c := range map[string]struct {
		first   *uint64
		missing uint64
	}{"it began in this start": {&first, 6}, "it was there before": {nil, 0}} {
		s := &StartSheet{LogStored: 3}
		s.Sheet.Ports = []ledger.Port{{ID: "a"}}
		s.Reach("a", []ledger.Position{{
			Device: 1, Epoch: 1, First: c.first, Last: 25,
			Gaps: []ledger.Gap{{From: 21, To: 23}},
		}}, nil)
		if _, err := s.Replay(log, streams, nil); err != nil {
			t.Fatal(err)
		}
		if f := s.Sheet.Ports[0].Frames; f.Missing != c.missing || f.Late != 0 {
			t.Errorf("%s: %d missing, %d late; want %d missing", name, f.Missing, f.Late, c.missing)
		}
		if at := s.Positions["a"][0]; at.Last != 26 {
			t.Errorf("%s: the next start goes on at %+v", name, at)
		}
	}
}

// A source that came after the last sheet that can be read has an account like any other: none of
// its maps and lists is null in JSON.
func TestASourceThatNoSheetKnowsHasAWholeAccount(t *testing.T) {
	dir, err := seglog.Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log, streams := logOf(t, illFolder{dir, &atomic.Int64{}, &atomic.Int64{}, &atomic.Int64{}}, 1, 2, 5, 6)
	s := &StartSheet{Sheet: ledger.NewSheet(9, 1, nil)}
	if _, err := s.Replay(log, streams, nil); err != nil {
		t.Fatal(err)
	}
	if len(s.Sheet.Ports) != 1 || s.Sheet.Ports[0].Frames.Missing != 2 {
		t.Fatalf("%+v", s.Sheet.Ports)
	}
	p := s.Sheet.Ports[0]
	var check func(name string, v reflect.Value)
	check = func(name string, v reflect.Value) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				if f := v.Type().Field(i); !strings.HasSuffix(f.Tag.Get("json"), ",omitempty") {
					check(name+"."+f.Name, v.Field(i))
				}
			}
		case reflect.Map, reflect.Slice:
			if v.IsNil() {
				t.Errorf("%s is null", name)
			}
		}
	}
	check("port", reflect.ValueOf(p))
}
