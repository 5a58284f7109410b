package recorder

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// modelFrame is a frame of the model of staged: all is known of each by itself.
type modelFrame struct {
	seq uint64
	at  int64
	f   frame.Frame
}

// stagedModel is what staged has to be: a list of frames, one by one.
type stagedModel struct {
	staged staged
	frames []modelFrame // not stored
	unsure []modelFrame // stored, and not durable
	given  uint64

	seq      uint64 // the log's newest
	at       int64
	number   uint64
	stored   uint64
	durable  uint64
	highest  map[ledger.Stream]uint64 // that was called stored, by the model
	reached  map[ledger.Stream]uint64 // … by staged
	storedN  int
	durableN int
}

func (m *stagedModel) push(f frame.Frame) {
	m.seq++
	m.staged.add(m.seq, m.at, &f)
	m.frames = append(m.frames, modelFrame{m.seq, m.at, f})
}

// run is frames that were read together. Others may have records between them, numbers may jump,
// come twice or come late, and some frames may have none.
func (m *stagedModel) run(t *rapid.T) {
	if rapid.Bool().Draw(t, "another read") {
		m.at++
	}
	of := rapid.Uint32Range(1, 2).Draw(t, "device")
	for range rapid.IntRange(1, 9).Draw(t, "frames") {
		if rapid.IntRange(0, 9).Draw(t, "others") == 0 {
			m.seq += rapid.Uint64Range(1, 3).Draw(t, "records")
		}
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0:
			m.push(frame.Frame{})
			continue
		case 1:
			m.number += rapid.Uint64Range(0, 3).Draw(t, "jump")
		case 2:
			m.number -= rapid.Uint64Range(1, 3).Draw(t, "back")
		default:
			m.number++
		}
		m.push(frame.Frame{Sequenced: true, Device: of, Epoch: 1, Seq: m.number})
	}
}

// datagram is one frame that was read by itself.
func (m *stagedModel) datagram(t *rapid.T) {
	m.at++
	f := frame.Frame{}
	if rapid.Bool().Draw(t, "numbered") {
		m.number++
		f = frame.Frame{Sequenced: true, Device: 1, Epoch: 1, Seq: m.number}
	}
	m.push(f)
}

// commit stores so many records, wherever that ends; a sync ends where the commit does, or did
// before.
func (m *stagedModel) commit(t *rapid.T) {
	before := m.stored
	m.stored += rapid.Uint64Range(0, m.seq-m.stored).Draw(t, "records")
	switch rapid.IntRange(0, 2).Draw(t, "sync") {
	case 0:
		m.durable = m.stored
	case 1: // the commit before was synced, and nobody was told of it by itself
		m.durable = before
	}
	var storedN, durableN int
	for len(m.frames) > 0 && m.frames[0].seq <= m.stored {
		storedN++
		if f := m.frames[0].f; f.Sequenced {
			raiseModel(m.highest, f)
		}
		m.unsure, m.frames = append(m.unsure, m.frames[0]), m.frames[1:]
	}
	for len(m.unsure) > 0 && m.unsure[0].seq <= m.durable {
		durableN++
		m.unsure = m.unsure[1:]
	}
	m.storedN, m.durableN = 0, 0
	m.staged.settle(m.stored, m.durable, func(r run) {
		m.storedN += r.n
		if r.numbered {
			raiseModel(m.reached, frame.Frame{Device: r.stream.Device, Epoch: r.stream.Epoch, Seq: r.highest()})
		}
	}, func(n int) { m.durableN += n })
	if m.storedN != storedN || m.durableN != durableN {
		t.Fatalf("%d called stored and %d durable; want %d and %d", m.storedN, m.durableN, storedN, durableN)
	}
}

func raiseModel(of map[ledger.Stream]uint64, f frame.Frame) {
	id := ledger.Stream{Device: f.Device, Epoch: f.Epoch}
	if last, ok := of[id]; ok {
		f.Seq = ledger.Later(f.Seq, last)
	}
	of[id] = f.Seq
}

// drop is a log that fails: what is staged will not be stored.
func (m *stagedModel) drop(t *rapid.T) {
	want := len(m.frames)
	if want > 0 && m.given == 0 {
		m.given = m.frames[0].seq
	}
	if _, got := m.staged.abandon(); got != want {
		t.Fatalf("%d dropped, want %d", got, want)
	}
	m.frames, m.stored = nil, m.seq
}

// is compares all that staged says with the model.
func (m *stagedModel) is(t *rapid.T) {
	if m.staged.frames != len(m.frames) {
		t.Fatalf("%d not stored, want %d", m.staged.frames, len(m.frames))
	}
	reaches := m.stored
	if len(m.frames) > 0 {
		reaches = min(reaches, m.frames[0].seq-1)
	}
	if m.given > 0 {
		reaches = min(reaches, m.given-1)
	}
	if got := m.staged.reaches(m.stored); got != reaches {
		t.Fatalf("reaches %d, want %d", got, reaches)
	}
	unsure := spanOf(m.unsure)
	if got := m.staged.unsynced(); got != unsure {
		t.Fatalf("unsynced %+v, want %+v", got, unsure)
	}
	if got, want := m.staged.held(), unsure.Join(spanOf(m.frames)); got != want {
		t.Fatalf("held %+v, want %+v", got, want)
	}
	for id, want := range m.highest {
		if got, ok := m.reached[id]; !ok || got != want {
			t.Fatalf("%+v is stored up to %d, want %d", id, got, want)
		}
	}
	if len(m.reached) != len(m.highest) {
		t.Fatalf("stored numbers of %v, want %v", m.reached, m.highest)
	}
	at := 0 // each run stands for the very frames that are not stored
	for _, r := range m.staged.runs[m.staged.head:] {
		for i := range r.n {
			want := m.frames[at]
			f := frame.Frame{}
			if r.numbered {
				f = frame.Frame{
					Sequenced: true, Device: r.stream.Device, Epoch: r.stream.Epoch, Seq: r.number + uint64(i),
				}
			}
			if r.begins+uint64(i) != want.seq || r.at != want.at || f.Sequenced != want.f.Sequenced ||
				f.Device != want.f.Device || f.Epoch != want.f.Epoch || f.Seq != want.f.Seq {
				t.Fatalf("frame %d of %+v; want %+v", i, r, want)
			}
			at++
		}
	}
	if at != len(m.frames) {
		t.Fatalf("runs of %d frames, want %d", at, len(m.frames))
	}
}

func spanOf(all []modelFrame) (u archive.Span) {
	for _, f := range all {
		u = u.Join(archive.Span{First: f.seq, Last: f.seq, N: 1})
	}
	return u
}

// Whatever is staged, committed and given up, in whatever pieces: counts, records and numbers are
// those of the single frames.
func TestStagedIsItsFrames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &stagedModel{highest: map[ledger.Stream]uint64{}, reached: map[ledger.Stream]uint64{}}
		m.number = rapid.SampledFrom([]uint64{0, 100, ^uint64(0) - 5}).Draw(t, "first number")
		t.Repeat(map[string]func(*rapid.T){
			"run": m.run, "datagram": m.datagram, "commit": m.commit, "drop": m.drop, "": m.is,
		})
	})
}

// Frames that were read together, and that a commit has cut in two, at a stop on a full disk: those
// that it has stored are stored, and the others alone are dropped. All were called dropped.
func TestStopBehindACutRun(t *testing.T) {
	l, log := testLane(t, "drop-newest")
	b := frames(0, 8)
	l.Arrived(b, len(b), 1)
	if log.seq != 8 {
		t.Fatalf("the log has %d records, want 8", log.seq)
	}
	l.settle(seglog.Commit{Stored: 4, Durable: 4}, 2)
	if ps := l.positions(); len(ps) != 1 || ps[0].Last != 3 {
		t.Errorf("positions %+v; want one that ends with 3", ps)
	}
	if n := l.lose(causeDiskFull); n != 4 {
		t.Errorf("%d given up, want 4", n)
	}
	if f := balanced(t, l); f.Stored != 4 || f.Durable != 4 || f.Dropped[causeDiskFull] != 4 {
		t.Errorf("%+v; want 4 stored, and 4 dropped", f)
	}
}
