package seglog

import (
	"errors"
	"io"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/fault"
	"pgregory.net/rapid"
)

// trySome appends without waiting.
func (m *machine) trySome(t *rapid.T) {
	for range rapid.IntRange(1, 60).Draw(t, "n") {
		id := m.nextID
		seq, err := put1(m.l, id, false)
		if err != nil {
			m.refused("TryAppend", err)
			continue
		}
		m.nextID++
		m.acknowledge(id, seq)
	}
}

func (m *machine) appendSome(t *rapid.T) {
	for range rapid.IntRange(1, 12).Draw(t, "n") {
		w, l := &waiting{id: m.nextID}, m.l
		m.nextID++
		m.waiting[w] = true
		go func() { w.seq, w.err = put1(l, w.id, true); w.done.Store(true) }()
	}
}

func (m *machine) sync(*rapid.T) {
	w, l := &waiting{sync: true, upTo: m.l.Position().Next - 1}, m.l
	m.waiting[w] = true
	go func() { w.err = l.Sync(); w.done.Store(true) }()
}

func (m *machine) pass(t *rapid.T) {
	time.Sleep(time.Duration(rapid.IntRange(0, 400).Draw(t, "ms")) * time.Millisecond)
}

func (m *machine) noRoom(t *rapid.T) { m.d.SetFree(int64(rapid.IntRange(0, 20<<10).Draw(t, "free"))) }

func (m *machine) someRoom(t *rapid.T) {
	m.d.SetFree(int64(rapid.IntRange(20<<10, 200<<10).Draw(t, "free")))
}

// trouble makes calls fail: one, some or all of them.
func (m *machine) trouble(t *rapid.T) {
	ops := []fault.Op{
		fault.OpWrite, fault.OpSync, fault.OpSyncDir, fault.OpCreate, fault.OpRename, fault.OpOpen, fault.OpRead,
		fault.OpRemove, fault.OpList,
	}
	only := rapid.SampledFrom(append([]fault.Op{""}, ops...)).Draw(t, "op")
	err := rapid.SampledFrom([]error{
		syscall.EIO, syscall.ENOSPC, syscall.EAGAIN, syscall.EMFILE, syscall.EDQUOT, syscall.ESTALE, syscall.ENOMEM,
	}).Draw(t, "error")
	odds, left := rapid.SampledFrom([]int{1, 1, 3, 20}).Draw(t, "odds"),
		rapid.SampledFrom([]int{1, 2, 1000}).Draw(t, "times")
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rng = rng
	m.fail = func(op fault.Op) error {
		if only != "" && op != only || left == 0 || rng.IntN(odds) > 0 {
			return nil
		}
		left--
		return err
	}
}

// calm ends the trouble. Within the time that a stall may last, all is stored and nobody waits; or
// the log has failed, and comes back.
func (m *machine) calm(t *rapid.T) {
	m.quiet()
	time.Sleep(liveness)
	m.collect()
	if m.l.Position().Err != nil {
		m.reopen()
		return
	}
	if p := m.l.Position(); p.Stored != p.Next-1 || p.Stalled != nil || len(m.waiting) > 0 {
		t.Fatalf("%v after the trouble: %+v, %d wait", liveness, p, len(m.waiting))
	}
	if err := m.l.Sync(); err != nil {
		t.Fatalf("Sync: %v", err)
	}
	if p := m.l.Position(); p.Durable != p.Next-1 {
		t.Fatalf("after Sync: %+v", p)
	}
	time.Sleep(time.Millisecond)
	m.read(t)
}

func (m *machine) closeAndOpen(*rapid.T) { m.reopen() }

// reopen closes the log and opens it again, in the trouble of the moment.
func (m *machine) reopen() {
	m.collect()
	floor := m.closed()
	if floor == m.told.stored.Load() {
		m.durable = m.told.durable.Load()
	}
	failed := m.told.failed.Load()
	m.mu.Lock()
	shot := m.shot
	m.mu.Unlock()
	if shot.dir != nil {
		m.mu.Lock()
		m.d, m.shot = shot.dir, moment{}
		m.mu.Unlock()
		m.open(shot.floor, false)
		return
	}
	m.open(floor, false)
	if r := m.l.Recovered(); failed != nil && (r.Last < failed.Stored || r.Last > failed.Doubt) {
		m.t.Fatalf("after %+v the log ends with %d", failed, r.Last)
	}
}

func (m *machine) kill(*rapid.T) {
	m.mu.Lock()
	d := m.d
	m.mu.Unlock()
	m.goOn(d.Copy(), m.told.stored.Load(), false)
}

func (m *machine) cut(t *rapid.T) {
	m.goOn(m.d.Crash(rapid.Uint64().Draw(t, "seed")), m.told.durable.Load(), false)
}

// arm lets the process be killed, or the power be cut, between two of the next calls of the disk.
func (m *machine) arm(t *rapid.T) {
	shot := moment{
		calls: rapid.IntRange(1, 60).Draw(t, "calls"), kill: rapid.Bool().Draw(t, "kill"),
		seed: rapid.Uint64().Draw(t, "seed"),
	}
	m.mu.Lock()
	m.shot = shot
	m.mu.Unlock()
}

// turnOld makes the log one of version 1.
func (m *machine) turnOld(t *rapid.T) {
	m.quiet()
	m.closed()
	floor := m.told.stored.Load()
	d := m.d.Copy()
	turnOld(t, d)
	m.mu.Lock()
	m.d, m.shot = d, moment{}
	m.mu.Unlock()
	m.identity = [16]byte{}
	m.open(floor, false)
}

// harm damages the files of the log while it is closed, or killed.
func (m *machine) harm(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "seldom") > 0 {
		return
	}
	m.collect()
	floor := m.told.stored.Load()
	d := m.d.Copy()
	if rapid.Bool().Draw(t, "closed") {
		m.quiet()
		if floor = m.closed(); floor != m.told.stored.Load() {
			t.Fatalf("closed at %d, told %d", floor, m.told.stored.Load())
		}
		d = m.d.Copy()
	} else {
		m.drop()
	}
	bases, err := segmentBases(faulty{d})
	if err != nil {
		t.Fatal(err)
	}
	i := rapid.IntRange(0, len(bases)-1).Draw(t, "segment")
	name := segmentName(bases[i])
	switch what := rapid.SampledFrom([]string{"flip", "flip", "index", "gone", "cut", "swap", "other"}).Draw(t,
		"harm"); what {
	case "flip", "index":
		if what == "index" && len(d.Bytes(indexName(bases[i]))) > 0 {
			name = indexName(bases[i])
		}
		b := d.Bytes(name)
		used := len(b)
		for used > 0 && b[used-1] == 0 {
			used--
		}
		if err := d.Flip(name, int64(rapid.IntRange(0, used-1).Draw(t, "at")),
			rapid.UintRange(0, 7).Draw(t, "bit")); err != nil {
			t.Fatal(err)
		}
	case "gone":
		if x, _, _ := readIndex(faulty{d}, bases[0]); i == 0 && len(bases) > 1 && x == nil {
			break // that looks like retention
		}
		if err := d.Remove(name); err != nil {
			t.Fatal(err)
		}
		if i > 0 && rapid.Bool().Draw(t, "with index") {
			_ = d.Remove(indexName(bases[i]))
		}
	case "cut":
		if err := d.Cut(name, int64(rapid.IntRange(0, len(d.Bytes(name))).Draw(t, "size"))); err != nil {
			t.Fatal(err)
		}
	case "swap":
		j := rapid.IntRange(0, len(bases)-1).Draw(t, "with")
		a, b := d.Bytes(name), d.Bytes(segmentName(bases[j]))
		put(t, d, name, b)
		put(t, d, segmentName(bases[j]), a)
	case "other":
		h := header{version: version, id: 1, base: bases[i] + 7, salt: 5, log: [16]byte{1, 2, 3}}
		put(t, d, segmentName(bases[len(bases)-1]+100_000), h.encode())
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	m.d, m.shot = d, moment{}
	m.mu.Unlock()
	m.open(floor, true)
}

// read lets the readers that follow the log go on. What they get is what was appended; trouble they
// may be asked again after.
func (m *machine) read(t *rapid.T) {
	stored := m.told.stored.Load()
	for name, r := range m.follow {
		for {
			rec, err := r.Next()
			var gap *GapError
			var corrupt *CorruptError
			if errors.As(err, &corrupt) {
				t.Fatalf("reader %s: %v; %+v", name, err, m.l.Position())
			}
			if errors.As(err, &gap) {
				for seq := range m.known {
					if gap.From <= seq && seq <= gap.To && seq >= m.l.Position().First {
						t.Fatalf("reader %s: %v, %d is there: %+v", name, err, seq, m.l.Position())
					}
				}
				m.seen[name] = gap.To
				continue
			}
			if err != nil {
				m.mu.Lock()
				quiet := m.fail == nil
				m.mu.Unlock()
				if quiet && (err != io.EOF || m.seen[name] != 0 && m.seen[name] < stored) {
					t.Fatalf("reader %s: %v at %d of %d", name, err, m.seen[name], stored)
				}
				break
			}
			id, ok := numberOf(rec)
			if was, known := m.known[rec.Seq]; !ok || known && was != id ||
				m.seen[name] != 0 && rec.Seq != m.seen[name]+1 {
				t.Fatalf("reader %s: after %d %+v, which is %d, not %d", name, m.seen[name], rec, id, was)
			}
			m.seen[name] = rec.Seq
		}
	}
}
