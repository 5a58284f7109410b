package seglog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallywheel/tallywheel/internal/fault"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"pgregory.net/rapid"
)

// TestModel holds the log against a model, in fake time, while all goes wrong that may: any call
// fails, the disk is full, the power is cut and the process killed between any two calls, files are
// damaged, exchanged and removed. -rapid.checks says how many runs, -rapid.seed which. A run that
// fails may not fail again, for goroutines take turns as they like: -rapid.nofailfile, and look at
// what it did.
//
// Safety: what was durable is there, or is named as lost, and only where somebody harmed the files;
// what was stored survives a kill; no sequence is given twice; readers get what was appended, once,
// in its place. Liveness: two seconds after the cause's end nothing is staged and nobody waits.
func TestModel(t *testing.T) {
	testenv.CheckFew(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			m := newMachine(t)
			defer m.end()
			t.Repeat(map[string]func(*rapid.T){
				"append": m.appendSome, "try": m.trySome, "try more": m.trySome, "sync": m.sync, "time": m.pass,
				"no room": m.noRoom, "room": m.someRoom, "trouble": m.trouble, "calm": m.calm,
				"close": m.closeAndOpen, "kill": m.kill, "cut": m.cut, "arm": m.arm, "harm": m.harm, "old": m.turnOld,
				"read": m.read,
				"":     m.check,
			})
		})
	})
}

// machine is the log and what the model knows of it.
type machine struct {
	t   *rapid.T
	cfg Config
	d   *fault.Dir
	l   *Log

	told     *told              // by the log that is open now
	known    map[uint64]uint64  // number of the entry that has a sequence: acknowledged, or read
	nextID   uint64             // number of the next entry
	durable  uint64             // what a cut while the log is opened leaves; all that was stored, if that is less
	identity [16]byte           // once it must not change
	waiting  map[*waiting]bool  // calls that have not returned
	follow   map[string]*Reader // readers that go on where they were
	seen     map[string]uint64  // what they have read

	mu   sync.Mutex // guards what follows: it is used by the disk
	fail func(op fault.Op) error
	rng  *rand.Rand
	shot moment
}

// told is what the log has told of itself.
type told struct {
	stored, durable atomic.Uint64
	failed          atomic.Pointer[Commit]
}

// waiting is a call of Append or Sync that may wait for long.
type waiting struct {
	id, seq uint64
	err     error
	sync    bool
	done    atomic.Bool
	upTo    uint64 // Sync: the last sequence that was given before
}

// moment is a state of the disk between two calls of the log, and what must survive in it.
type moment struct {
	calls int // until it is taken; 0: none
	kill  bool
	seed  uint64
	dir   *fault.Dir
	floor uint64
}

func newMachine(t *rapid.T) *machine {
	m := &machine{
		t: t, d: fault.New(), known: map[uint64]uint64{}, waiting: map[*waiting]bool{},
		durable: math.MaxUint64,
	}
	m.cfg = Config{
		SegmentBytes: 16 << 10, MinFree: -1,
		Sync:         rapid.SampledFrom([]SyncPolicy{SyncBatch, SyncAlways, SyncInterval, SyncNever}).Draw(t, "policy"),
		OnFull:       rapid.SampledFrom([]FullPolicy{StopWhenFull, DropOldest}).Draw(t, "full"),
		BufferBytes:  rapid.SampledFrom([]int{1 << 10, 4 << 10}).Draw(t, "buffer"),
		BatchRecords: rapid.SampledFrom([]int{0, 3, 20}).Draw(t, "batch"),
		BatchDelay:   rapid.SampledFrom([]time.Duration{time.Millisecond, 50 * time.Millisecond}).Draw(t, "delay"),
		KeepBytes:    rapid.SampledFrom([]int64{0, 0, 5 * 16 << 10}).Draw(t, "keep"),
	}
	m.open(0, false)
	return m
}

// entryOf is the entry of that number. Everything of it follows from the number.
func entryOf(id uint64) (r Record, lane Lane, drop Drop) {
	rng := rand.New(rand.NewPCG(id, 4))
	r = Record{Time: int64(rng.IntN(1000)), Stream: uint32(rng.IntN(4)), Offset: NoOffset}
	switch k := rng.IntN(10); {
	case k == 0:
		r.Kind = KindLane
		binary.LittleEndian.PutUint64(lane.ID[:], id)
		lane.Offset = id * 3
		return r, lane, drop
	case k == 1:
		r.Kind = KindDrop
		return r, lane, Drop{From: id, To: max(id, rng.Uint64()), N: 7, Cause: "overflow_oldest"[:rng.IntN(15)]}
	case k < 5:
		r.Offset = rng.Uint64() >> 1
	}
	r.Data = binary.LittleEndian.AppendUint64(nil, id)
	for range rng.IntN(300) {
		r.Data = append(r.Data, byte(rng.Uint32()))
	}
	return r, lane, drop
}

// numberOf returns the number of the entry that was read, if it is what was appended.
func numberOf(r Record) (id uint64, ok bool) {
	lane, isLane := r.Lane()
	drop, isDrop := r.Drop()
	switch {
	case isLane:
		id = binary.LittleEndian.Uint64(lane.ID[:])
	case isDrop:
		id = drop.From
	case len(r.Data) < 8:
		return 0, false
	default:
		id = binary.LittleEndian.Uint64(r.Data)
	}
	w, wantLane, wantDrop := entryOf(id)
	ok = lane == wantLane && drop == wantDrop && r.Kind == w.Kind && r.Time == w.Time && r.Stream == w.Stream &&
		r.Offset == w.Offset
	return id, ok && (r.Kind != KindRecord || slices.Equal(r.Data, w.Data))
}

func put1(l *Log, id uint64, wait bool) (uint64, error) {
	r, lane, drop := entryOf(id)
	switch {
	case r.Kind == KindLane:
		return l.TryAppendLane(r.Stream, r.Time, lane)
	case r.Kind == KindDrop:
		return l.TryAppendDrop(r.Stream, r.Time, drop)
	case wait:
		return l.AppendAt(r.Stream, r.Time, r.Offset, r.Data)
	}
	return l.TryAppendAt(r.Stream, r.Time, r.Offset, r.Data)
}

// snoop is the disk of the machine: between two calls its state may be kept.
type snoop struct {
	faulty
	m    *machine
	told *told
}

func (s snoop) before() {
	s.m.mu.Lock()
	shot := &s.m.shot
	due := s.Dir == s.m.d && shot.calls == 1
	if s.Dir == s.m.d && shot.calls > 0 {
		shot.calls--
	}
	taken := *shot
	s.m.mu.Unlock()
	if !due {
		return
	}
	// The disk is asked without the lock: it holds its own while it asks inject.
	if taken.kill {
		taken.floor, taken.dir = s.told.stored.Load(), s.Copy()
	} else {
		taken.floor, taken.dir = s.told.durable.Load(), s.Crash(taken.seed)
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.Dir == s.m.d && shot.calls == 0 { // nobody has gone on, or armed the next, meanwhile
		*shot = taken
	}
}

func (s snoop) Rename(from, to string) error     { s.before(); return s.faulty.Rename(from, to) }
func (s snoop) Remove(name string) error         { s.before(); return s.faulty.Remove(name) }
func (s snoop) Sync() error                      { s.before(); return s.faulty.Sync() }
func (s snoop) Create(name string) (File, error) { s.before(); return s.file(s.faulty.Create(name)) }
func (s snoop) Open(name string) (File, error)   { return s.file(s.faulty.Open(name)) }
func (s snoop) file(f File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return snoopFile{f, s}, nil
}

type snoopFile struct {
	File
	s snoop
}

func (f snoopFile) Sync() error { f.s.before(); return f.File.Sync() }
func (f snoopFile) WriteAt(b []byte, off int64) (int, error) {
	f.s.before()
	return f.File.WriteAt(b, off)
}

// inject fails calls as the trouble of the moment says.
func (m *machine) inject(op fault.Op, _ string) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail == nil {
		return 0, nil
	}
	err := m.fail(op)
	if err == nil {
		return 0, nil
	}
	return m.rng.IntN(2000), err
}

// open opens the log and holds it against the model. Everything up to floor must be there, but for
// what somebody harmed.
func (m *machine) open(floor uint64, harmed bool) {
	t := m.t
	m.told = new(told)
	m.told.stored.Store(floor)
	m.told.durable.Store(min(floor, m.durable))
	m.durable = math.MaxUint64
	told := m.told
	cfg := m.cfg
	cfg.FS = snoop{faulty{m.d}, m, told}
	cfg.OnCommit = func(c Commit) {
		if c.Durable < told.durable.Load() || c.Stored < told.stored.Load() || c.Durable > c.Stored {
			panic(fmt.Sprintf("after %d stored, %d durable: %+v", told.stored.Load(), told.durable.Load(), c))
		}
		told.stored.Store(c.Stored)
		told.durable.Store(c.Durable)
		if c.Err != nil {
			told.failed.Store(&c)
		}
	}
	if harmed || rapid.Bool().Draw(t, "owner knows") {
		cfg.Expect.Last, cfg.Identity = floor, m.identity
	}
	m.d.SetInject(m.inject)
	if harmed {
		m.interrupt()
	}
	var err error
	var missing []Missing
	for tries := 0; ; tries++ {
		if m.l, err = Open(cfg); err == nil {
			missing = append(missing, m.l.Recovered().Missing...)
			if !harmed {
				break
			}
			m.quiet() // what is damaged need not be found at once
			s, verifyErr := Verify(cfg.FS)
			if verifyErr != nil || tries > 5 {
				t.Fatalf("Verify: %+v, %v", s, verifyErr)
			}
			if s.Clean() {
				break
			}
			if err := m.l.Close(); err != nil {
				t.Fatal(err)
			}
			if s, err := RepairKnown(cfg.FS, cfg.Expect); err != nil {
				t.Fatalf("Repair: %+v, %v", s, err)
			}
			continue
		}
		corrupt := (*CorruptError)(nil)
		switch {
		case errors.As(err, &corrupt) && harmed && tries < 5:
			m.quiet()
			if s, err := RepairKnown(cfg.FS, cfg.Expect); err != nil {
				t.Fatalf("Repair: %+v, %v", s, err)
			}
		case errors.As(err, &corrupt):
			t.Fatalf("Open: %v", err)
		case tries > 20:
			t.Fatalf("Open, without any trouble: %v", err)
		case tries > 10:
			m.quiet()
		}
	}
	r, p := m.l.Recovered(), m.l.Position()
	if r.Last != p.Next-1 || p.Stored != r.Last || p.Next <= floor {
		t.Fatalf("recovered %+v, position %+v; %d must be there", r, p, floor)
	}
	if id := m.l.Identity(); m.identity != [16]byte{} && id != m.identity {
		t.Fatalf("identity %x, it was %x", id, m.identity)
	}
	m.mu.Lock()
	fail := m.fail
	m.fail = nil
	m.mu.Unlock()
	m.identity, _ = Identity(faulty{m.d}) // no segment may carry it yet: then only its owner can know it
	r.Missing = missing
	m.recount(r, floor, harmed)
	m.mu.Lock()
	m.fail = fail
	m.mu.Unlock()
	told.stored.Store(p.Stored)
	told.durable.Store(p.Durable)
	m.follow, m.seen = map[string]*Reader{"in": m.l.NewReader(p.Next), "out": NewReader(faulty{m.d}, p.Next)},
		map[string]uint64{}
	for _, r := range m.follow {
		r.Notes()
	}
}

// interrupt lets one of the next calls of the disk fail: somewhere in the opening of a log of which
// something is missing, which must be named all the same.
func (m *machine) interrupt() {
	left := rapid.IntRange(0, 60).Draw(m.t, "calls before one fails")
	rng := rand.New(rand.NewPCG(uint64(left), 2))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rng = rng
	m.fail = func(fault.Op) error {
		if left--; left != 0 {
			return nil
		}
		return syscall.EIO
	}
}

// quiet ends all trouble.
func (m *machine) quiet() {
	m.mu.Lock()
	m.fail = nil
	m.mu.Unlock()
	m.d.SetFree(-1)
}

// recount reads the log and holds it against what is known. After that it is what is known.
func (m *machine) recount(r Recovery, floor uint64, harmed bool) {
	t := m.t
	first := m.l.Position().First
	may := m.cfg.KeepBytes > 0 || m.cfg.OnFull == DropOldest
	reader := m.l.NewReader(first)
	reader.Notes()
	found, gaps := census(t, reader, first, r.Last)
	first = m.l.Position().First // retention goes on meanwhile
	for _, missing := range r.Missing {
		gaps = append(gaps, GapError{From: missing.From, To: missing.To})
	}
	for seq, id := range m.known {
		got, there := found[seq]
		switch {
		case there && got != id:
			t.Fatalf("sequence %d has entry %d, it had %d", seq, got, id)
		case there, seq > floor, seq < first && may:
			continue
		case !harmed:
			t.Fatalf("entry %d with sequence %d is gone; the log has %d to %d, %d must be there; %+v", id, seq, first,
				r.Last, floor, r)
		case !slices.ContainsFunc(gaps, func(g GapError) bool { return g.From <= seq && seq <= g.To }):
			t.Fatalf("entry %d with sequence %d is gone, and is not named; %+v, gaps %v", id, seq, r, gaps)
		}
	}
	if !harmed && len(r.Missing) > 0 {
		for _, missing := range r.Missing {
			for seq := range m.known {
				if missing.From <= seq && seq <= missing.To {
					t.Fatalf("%v is named as missing, it is there", missing)
				}
			}
		}
	}
	m.known = found
}

// census reads what a log holds. Every sequence is there once, or in a gap.
func census(t *rapid.T, r *Reader, first, last uint64) (found map[uint64]uint64, gaps []GapError) {
	defer r.Close()
	found = map[uint64]uint64{}
	ids := map[uint64]uint64{}
	next := first
	for {
		rec, err := r.Next()
		var gap *GapError
		switch {
		case err == io.EOF:
			if next != last+1 {
				t.Fatalf("the log ends before %d, want %d", next, last+1)
			}
			return found, gaps
		case errors.As(err, &gap):
			if gap.From != next || gap.To < gap.From {
				t.Fatalf("%v, want one from %d", gap, next)
			}
			gaps, next = append(gaps, *gap), gap.To+1
		case err != nil:
			t.Fatalf("reading %d: %v", next, err)
		default:
			if next == 1 { // who asks for the oldest is told of no gap: retention may have been faster
				next = rec.Seq
			}
			id, ok := numberOf(rec)
			if was, twice := ids[id]; !ok || twice || rec.Seq != next {
				t.Fatalf("sequence %d, want %d, is %+v; entry %d also is %d: %t", rec.Seq, next, rec, id, was, twice)
			}
			ids[id], found[rec.Seq], next = rec.Seq, id, next+1
		}
	}
}

// acknowledge notes that an entry got a sequence.
func (m *machine) acknowledge(id, seq uint64) {
	if was, ok := m.known[seq]; ok && was != id {
		m.t.Fatalf("sequence %d was given to entry %d, and now to %d", seq, was, id)
	}
	m.known[seq] = id
}

// refused checks that an error is one that the log may give now.
func (m *machine) refused(what string, err error) {
	if failed := m.told.failed.Load(); errors.Is(err, ErrFailed) != (m.l.Position().Err != nil) &&
		errors.Is(err, ErrFailed) {
		m.t.Fatalf("%s gives %v; position %+v, told %+v", what, err, m.l.Position(), failed)
	}
	if !errors.Is(err, ErrBusy) && !errors.Is(err, ErrDiskFull) && !errors.Is(err, ErrFailed) {
		m.t.Fatalf("%s gives %v", what, err)
	}
}

// collect takes what calls have returned.
func (m *machine) collect() {
	synctest.Wait()
	for w := range m.waiting {
		if !w.done.Load() {
			continue
		}
		delete(m.waiting, w)
		switch p := m.l.Position(); {
		case w.sync:
			if w.err == nil && p.Durable < w.upTo {
				m.t.Fatalf("Sync says that %d is durable: %+v", w.upTo, p)
			}
		case w.seq != 0: // with an error, too, the sequence was given
			m.acknowledge(w.id, w.seq)
			if w.err == nil && m.cfg.Sync == SyncAlways && p.Durable < w.seq && entryKind(w.id) == KindRecord {
				m.t.Fatalf("Append says that %d is durable: %+v", w.seq, p)
			}
		default:
			m.refused("Append", w.err)
		}
	}
}

func entryKind(id uint64) Kind {
	r, _, _ := entryOf(id)
	return r.Kind
}

// check is made between any two actions.
func (m *machine) check(t *rapid.T) {
	m.t = t
	m.collect()
	p := m.l.Position()
	if stored, durable := m.told.stored.Load(), m.told.durable.Load(); p.Stored != stored || p.Durable != durable ||
		p.Next <= stored {
		t.Fatalf("position %+v, told %d stored, %d durable", p, stored, durable)
	}
	m.mu.Lock()
	shot := m.shot
	m.mu.Unlock()
	if shot.dir != nil { // this is where it went down
		m.goOn(shot.dir, shot.floor, false)
	}
}

// goOn leaves the log as it is and opens another state of the disk.
func (m *machine) goOn(d *fault.Dir, floor uint64, harmed bool) {
	m.drop()
	m.mu.Lock()
	m.d, m.shot = d, moment{}
	m.mu.Unlock()
	m.open(floor, harmed)
}

// drop ends the log, and what is left of it does not count.
func (m *machine) drop() {
	m.quiet()
	for _, r := range m.follow {
		r.Close()
	}
	if m.l == nil {
		return
	}
	_ = m.l.Close()
	synctest.Wait()
	for w := range m.waiting {
		if !w.done.Load() {
			m.t.Fatal("a call waits after Close")
		}
		if w.seq != 0 && m.known[w.seq] == 0 {
			m.known[w.seq] = w.id // it may be there, or not
		}
		delete(m.waiting, w)
	}
}

// end is the end of a run: calm, then closed, then whole.
func (m *machine) end() {
	if m.t.Failed() {
		m.drop()
		return
	}
	m.calm(m.t)
	m.closed()
	if s, err := Verify(faulty{m.d}); err != nil || !s.Clean() {
		m.t.Fatalf("Verify: %+v, %v", s, err)
	}
}

// closed closes the log, as things are, and returns what must survive.
func (m *machine) closed() (floor uint64) {
	for _, r := range m.follow {
		r.Close()
	}
	next := m.l.Position().Next
	err := m.l.Close()
	m.collectAfterClose()
	if err == nil {
		return next - 1
	}
	return m.told.stored.Load()
}

func (m *machine) collectAfterClose() {
	synctest.Wait()
	for w := range m.waiting {
		if !w.done.Load() {
			m.t.Fatal("a call waits after Close")
		}
		if w.seq != 0 {
			m.acknowledge(w.id, w.seq)
		}
		delete(m.waiting, w)
	}
}
