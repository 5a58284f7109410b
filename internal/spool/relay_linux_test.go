package spool

import (
	"errors"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ring"
	"pgregory.net/rapid"
)

// relayed is what a model has where the device is read into a near spool, and what is recorded is
// the far one. Who kills the reader kills the relay, too.
type relayed struct {
	far     *Spool // nil: there is one spool
	between *Relay
	file    *modelFile // as a successor finds it; nil: there is none
	failing int        // of so many calls of the file one fails; 0: none
	damages int        // of so many reads one brings something else, or fails; 0: none
	damaged bool
	most    int64 // bytes of the file
	spilled int   // most bytes that the file had
}

// modelFile is a file of a model.
type modelFile struct {
	m *model
	b []byte
}

var errModelFile = errors.New("the disk is broken")

func (f *modelFile) fails() error {
	if f.m.failing > 0 && !f.m.inside {
		switch f.m.choose(f.m.failing) {
		case 1:
			return errModelFile
		case 2:
			return syscall.ENOSPC
		}
	}
	return nil
}

func (f *modelFile) WriteAt(b []byte, at int64) (int, error) {
	err := f.fails()
	n := len(b)
	if err != nil {
		n = f.m.choose(n + 1)
	}
	if end := int(at) + n; end > len(f.b) {
		f.b = append(f.b, make([]byte, end-len(f.b))...)
	}
	half := copy(f.b[at:], b[:n/2])
	f.m.between.step() // killed in a write
	copy(f.b[int(at)+half:], b[half:n])
	f.m.spilled = max(f.m.spilled, len(f.b))
	return n, err
}

func (f *modelFile) ReadAt(b []byte, at int64) (int, error) {
	if f.m.damages > 0 && f.m.choose(f.m.damages) == 1 {
		f.m.damaged = true
		if f.m.choose(2) == 1 {
			return 0, syscall.EIO
		}
		f.b[f.m.choose(len(f.b))] ^= 1 << f.m.choose(8)
	}
	if int(at)+len(b) > len(f.b) {
		return 0, errors.New("behind the end")
	}
	return copy(b, f.b[at:]), nil
}

func (f *modelFile) Size() (int64, error) { return int64(len(f.b)), nil }
func (f *modelFile) Room() (int64, error) { return 1 << 40, nil }
func (f *modelFile) Close() error         { f.m.file = nil; return nil }

func (m *model) outer() *Spool {
	if m.far != nil {
		return m.far
	}
	return m.spool
}

func (m *model) readerDies() { m.producer, m.between = nil, nil }

// actors is how many there are: who reads, who records, and a relay.
func (m *model) actors() int {
	if m.far != nil {
		return 3
	}
	return 2
}

// waiting is more than the marks that may be in the file.
func (m *model) waiting() int {
	if m.far == nil {
		return 0
	}
	return m.spilled/markBytes + m.far.Marks()
}

func (m *model) consumeOrRelay() error {
	if m.far != nil && m.choose(2) == 1 {
		return m.relay()
	}
	return m.consume()
}

func (m *model) produceOrRelay() error {
	if m.far != nil && m.choose(2) == 1 {
		return m.relay()
	}
	return m.produce()
}

func (m *model) relay() error {
	if m.far == nil {
		return nil
	}
	return m.try(m.readerDies, func() (err error) {
		if m.between == nil {
			cfg := RelayConfig{Max: m.most, Failed: func(error) {}, Open: func() (SpillFile, error) {
				f := &modelFile{m: m}
				if err := f.fails(); err != nil {
					return nil, err
				}
				m.file = f
				return f, nil
			}}
			if m.file != nil {
				cfg.File = m.file
			}
			m.between, err = newRelay(m.spool, m.far, cfg, m.step(m.produceOrConsume))
			return err
		}
		if m.between.IsThrough() || m.choose(3) == 0 {
			return m.between.Move()
		}
		_, err = m.between.Step()
		return err
	})
}

func (m *model) produceOrConsume() error {
	if m.choose(2) == 1 {
		return m.consume()
	}
	return m.produce()
}

// newRelayed makes a model with a relay, of small spools and a file that is soon full.
func newRelayed(t rapid.TB, choose func(n int) int) *model {
	near, err := Create(Config{Size: 1, Marks: 1, Room: RelayRoom})
	if err != nil {
		t.Fatal(err)
	}
	far, err := Create(small)
	if err != nil {
		t.Fatal(err)
	}
	m := &model{spool: near, choose: choose}
	m.far, m.most = far, int64(3000+choose(60_000))
	m.tells = choose(2) == 1
	if choose(2) == 1 {
		m.failing = 3 + choose(30)
	}
	return m
}

// behind is how many bytes wait in front of the far spool.
func (m *model) behind() uint64 {
	end, head := ring.Uint64(m.far.owner, endAt).Load(), uint64(0)
	if n := ring.Uint64(m.far.owner, publishedAt).Load(); n > 0 {
		head = markOf(m.far.mark(n - 1)).At
	}
	return end - head
}

func (m *model) close() { _ = errors.Join(m.spool.Close(), m.far.Close()) }

func TestRelayMayDieAtAnyStep(t *testing.T) {
	testenv.Check(t, func(t *rapid.T) {
		m := newRelayed(t, func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") })
		defer m.close()
		if err := m.run(rapid.IntRange(1, 400).Draw(t, "steps")); err != nil {
			t.Fatal(err)
		}
	})
}

// TestManyDeathsWithARelay kills who reads and who records, at any step, with a log that now and
// then stands still, and a file that now and then cannot be written.
func TestManyDeathsWithARelay(t *testing.T) {
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	kills, spilled, runs, offset := 0, 0, 0, 0
	for kills < *modelKills {
		m := newRelayed(t, rng.IntN)
		if err := m.run(2000); err != nil {
			t.Fatal(err)
		}
		runs++
		kills, offset = kills+m.kills, offset+len(m.log)
		if m.spilled > 0 {
			spilled++
		}
		m.close()
	}
	t.Logf("%d kills in %d runs, %d of them with a file; %d bytes", kills, runs, spilled, offset)
	if 2*spilled < runs || offset < kills {
		t.Error("too little to say anything")
	}
}

// TestRelayLosesWhatItSays has a file that does not give back what was written: what was lost is
// named, to the byte, and what comes behind it is not touched.
func TestRelayLosesWhatItSays(t *testing.T) {
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	lost, damaged := 0, 0
	for range 100 {
		m := newRelayed(t, rng.IntN)
		m.tells, m.damages = true, 5
		if err := m.run(2000); err != nil {
			t.Fatal(err)
		}
		if m.damaged {
			damaged++
		}
		for _, mark := range m.marks {
			if mark.Kind == Lost && mark.A == Spilled && mark.B > 0 {
				lost++
			}
		}
		m.close()
	}
	if damaged == 0 || lost == 0 {
		t.Errorf("%d damaged, %d losses: too little to say anything", damaged, lost)
	}
}

// TestRelayDamage is TestDamage for the memory of a relay's near spool, and of its far one.
func TestRelayDamage(t *testing.T) {
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	for range 300 {
		m := newRelayed(t, rng.IntN)
		in := make([]byte, 3000)
		for i := range in {
			in[i] = byte(rng.Uint32() & rng.Uint32())
		}
		useRelay(m, 300, func() { in = spoil([]*Spool{m.spool, m.far}[rng.IntN(2)], in) })
		m.close()
	}
}

// FuzzRelayDamage is FuzzDamage for the memory of a relay's spools, and its file.
func FuzzRelayDamage(f *testing.F) {
	f.Add([]byte{1, 128, 0, 1, 0, 5, 9, 2, 3, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, in []byte) {
		rng := rand.New(rand.NewPCG(1, uint64(len(in))))
		m := newRelayed(t, rng.IntN)
		defer m.close()
		useRelay(m, 200, func() {
			if m.file != nil && len(m.file.b) > 0 && len(in) > 4 && in[0]%8 == 7 {
				m.file.b[(int(in[1])|int(in[2])<<8)%len(m.file.b)] ^= in[3]
			}
			in = spoil([]*Spool{m.spool, m.far}[rng.IntN(2)], in)
		})
	})
}

// useRelay has all do what they can with memory that is spoilt meanwhile. An error ends who met
// it; a panic, or a fault, ends the test.
func useRelay(m *model, rounds int, spoil func()) {
	m.inside = true // nobody is killed
	for range rounds {
		if m.between != nil { // a near spool that is not bound yet is passed on to nobody
			spoil()
		}
		if m.producer == nil && m.startProducer() != nil {
			m.producer = nil
		} else if m.produce() != nil {
			m.readerDies()
		}
		if m.relay() != nil {
			m.readerDies()
		}
		c := m.consumer
		if c == nil {
			c, _ = m.far.consume(1<<40, func() {})
		} else if _, view, ok, err := c.Next(); err != nil {
			c = nil
		} else if ok {
			c.Done(len(view))
			if m.choose(4) == 0 {
				_ = c.Save(Checkpoint{Point: c.Point()})
			}
		}
		m.consumer = c
	}
}

// TestRelayIsOfTwoSpools has a new near spool before a far one that has been used, and one that is
// that of another.
func TestRelayIsOfTwoSpools(t *testing.T) {
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	m, other := newRelayed(t, rng.IntN), newRelayed(t, rng.IntN)
	defer m.close()
	defer other.close()
	cfg := RelayConfig{Max: m.most, Failed: func(error) {}}
	for i, near := range []*Spool{m.spool, other.spool} {
		r, err := NewRelay(near, m.far, cfg)
		if err != nil {
			t.Fatal(err)
		}
		p, err := near.Producer(0)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := p.ReadWhole(Chunk, 5, Moment{}, 0, read5); err != nil {
				t.Fatal(err)
			}
			if err := r.Move(); err != nil {
				t.Fatal(err)
			}
		}
		if published, _, _ := m.far.marks(); published != uint64(2*i+2) {
			t.Errorf("the far spool has %d marks behind near spool %d", published, i)
		}
	}
	if _, err := NewRelay(m.spool, other.far, cfg); !errors.Is(err, ErrOther) {
		t.Errorf("the near spool of another: %v", err)
	}
}

// TestRelayThatIsClosedTells has bytes come behind what a relay has moved last: whoever records
// knows of them, though nobody brings them any more.
func TestRelayThatIsClosedTells(t *testing.T) {
	m := newRelayed(t, rand.New(rand.NewPCG(testenv.Seed(t), 1)).IntN)
	defer m.close()
	r, err := NewRelay(m.spool, m.far, RelayConfig{Max: m.most, Failed: func(error) {}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.spool.Producer(0)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.Move(); err != nil {
			t.Fatal(err)
		}
		if _, err := p.ReadWhole(Chunk, 5, Moment{}, 0, read5); err != nil {
			t.Fatal(err)
		}
	}
	if r.Close(); m.behind() != 5 {
		t.Errorf("%d bytes wait, by what it has told: want 5", m.behind())
	}
}

func read5(_ int, b []byte) (int, syscall.Errno) { return len(b[:5]), 0 }

// TestRelayKeepsTheOrder moves more than both spools hold through the file, and back, while nobody
// is killed: the file is given back when it is empty, and how much waits is told.
func TestRelayKeepsTheOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	m := newRelayed(t, rng.IntN)
	defer m.close()
	m.failing, m.most, m.inside, m.tells = 0, 16<<20, true, true
	for len(m.taken) < 20_000 { // a read may take one byte, and a mark 32
		if err := errors.Join(m.produce(), m.relay()); err != nil {
			t.Fatal(err)
		}
	}
	if m.file == nil || m.spilled == 0 || m.between.Cause() != 0 {
		t.Fatalf("nothing has run over: %+v", m.relayed)
	}
	testenv.Until(t, 1e9, "steps", func() bool { more, err := m.between.Step(); return err != nil || !more })
	if n := m.behind(); n+uint64(m.far.Size()) < uint64(len(m.taken)) || n > uint64(len(m.taken)) {
		t.Errorf("%d bytes wait behind the far spool, of %d", n, len(m.taken))
	}
	if err := m.judge(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(m.log, m.taken) {
		t.Error("what comes out is not what went in")
	}
	if m.file != nil || m.behind() != 0 || !m.between.IsThrough() {
		t.Errorf("the file is there, or %d bytes wait, when all was recorded", m.behind())
	}
}

// TestRelayTellsWhileItWorks looks how much waits at each of its steps, and whenever the file is at
// work, which may take long: each byte counts once.
func TestRelayTellsWhileItWorks(t *testing.T) {
	m := newRelayed(t, rand.New(rand.NewPCG(testenv.Seed(t), 1)).IntN)
	defer m.close()
	m.failing, m.inside = 0, true
	far, err := m.far.Consumer(0)
	if err != nil {
		t.Fatal(err)
	}
	sent, looks := uint64(0), 0
	look := func() {
		looks++
		unshown, inFront := far.Waits()
		if n := far.Point().Shown + unshown + inFront; n > sent {
			t.Fatalf("look %d: %d bytes are shown or wait, of %d", looks, n, sent)
		}
	}
	opens := func() (SpillFile, error) {
		m.file = &modelFile{m: m}
		return watchedFile{m.file, look}, nil
	}
	r, err := newRelay(m.spool, m.far, RelayConfig{Max: 1 << 20, Failed: func(error) {}, Open: opens}, look)
	if err != nil {
		t.Fatal(err)
	}
	m.between = r
	near, err := m.spool.Producer(0)
	if err != nil {
		t.Fatal(err)
	}
	step := func() {
		for more := true; more; look() {
			if more, err = r.Step(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 300 {
		if _, err := near.ReadWhole(Chunk, 100, Moment{}, 0, read100); err != nil {
			t.Fatal(err)
		}
		sent += 100
		step()
	}
	for far.Point().Shown < sent {
		_, view, ok, err := far.Next()
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			far.Done(len(view))
			continue
		}
		for range 2 {
			if err := far.Save(Checkpoint{Point: far.Point(), Data: []byte{1}}); err != nil {
				t.Fatal(err)
			}
		}
		step()
	}
	if looks < 400 {
		t.Errorf("%d looks: too few to say anything", looks)
	}
}

// watchedFile has somebody look whenever it is at work.
type watchedFile struct {
	*modelFile
	look func()
}

func (f watchedFile) WriteAt(b []byte, at int64) (int, error) {
	f.look()
	return f.modelFile.WriteAt(b, at)
}

func (f watchedFile) ReadAt(b []byte, at int64) (int, error) {
	f.look()
	return f.modelFile.ReadAt(b, at)
}

func read100(_ int, b []byte) (int, syscall.Errno) { return len(b[:100]), 0 }
