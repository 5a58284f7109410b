package ipc

import (
	"errors"
	"flag"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ring"
	"pgregory.net/rapid"
)

var modelKills = flag.Int("kills", testenv.Rounds(2000, 1000), "how many times a side of the model is killed")

// frame is the length of a frame of the model: the ring holds four.
const frame = 1000

// model runs the two sides of a ring step by step, in any order, and kills either between any two
// steps that the other can see. Sleeps have no end but a wake, so a wake that is lost is found.
type model struct {
	ring   *Ring
	sides  [2]*side
	choose func(n int) int
	failed error

	published uint64 // frames, by the step that did
	taken     uint64 // by the consumer's lasting effect
	released  uint64
}

// side is the producer (0) or the consumer (1): a coroutine that stops at each step.
type side struct {
	m      *model
	i      int
	end    *end
	next   func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	asleep *atomic.Uint32 // the bell
	sleeps int
	alive  bool
	told   bool // the other side knows of the death
}

type killed struct{}

// step implements kernel.
func (s *side) step() {
	if !s.yield(struct{}{}) {
		panic(killed{})
	}
}

// sleep implements kernel.
func (s *side) sleep(bell *atomic.Uint32, while uint32, _ time.Duration) {
	if bell.Load() != while {
		return
	}
	s.sleeps++
	for s.asleep = bell; s.asleep != nil; {
		s.step()
	}
}

// wake implements kernel.
func (s *side) wake(bell *atomic.Uint32) {
	for _, o := range s.m.sides {
		if o.asleep == bell {
			o.asleep = nil
		}
	}
}

// start lets a side begin, as a new process does.
func (m *model) start(i int) {
	s := m.sides[i]
	s.alive, s.asleep, s.end = true, nil, nil
	s.next, s.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			if r := recover(); r != nil {
				if _, ok := r.(killed); !ok {
					panic(r)
				}
			}
		}()
		s.yield = yield
		s.end = m.ring.endOf(i, s)
		if err := [](func(*side) error){m.produce, m.consume}[i](s); err != nil {
			m.failed = fmt.Errorf("side %d: %w", i, err)
		}
	})
}

// kill ends a side where it stands.
func (m *model) kill(i int) {
	s := m.sides[i]
	s.stop()
	s.alive, s.asleep, s.told = false, nil, false
}

// tell lets the other side's watcher know.
func (m *model) tell(i int) {
	dead, other := m.sides[i], m.sides[1-i]
	dead.told = true
	if other.end == nil || !other.alive {
		return
	}
	other.end.kernel = quiet{other} // a watcher is no step of the side
	other.end.mu.Lock()
	if life := other.end.peerLife.Load(); life&1 == 1 { // else it has not taken its end
		other.end.died(life)
	}
	other.end.mu.Unlock()
	other.end.kernel = other
}

type quiet struct{ *side }

func (quiet) step() {}

// produce publishes frames whose number follows from the position, for ever.
func (m *model) produce(s *side) error {
	indices, err := m.ring.shared.Producer()
	if err != nil {
		return err
	}
	s.step()
	s.end.attach()
	p := &Producer{s.end, indices}
	for {
		space, err := p.Wait(frame, -1)
		if err = s.mayBeDead(err); err != nil {
			return err
		}
		if len(space) < frame {
			continue
		}
		number := p.Position() / frame
		for at := 0; at < frame; at += 248 { // one after the other: a kill leaves it half written
			s.step()
			ring.Uint64(space, at).Store(number<<16 | uint64(uint16(s.end.own)))
		}
		s.step()
		p.ring.Publish(frame)
		m.published = max(m.published, number+1)
		s.step()
		p.tell()
	}
}

// consume takes frames; what it does with one lasts, and then it releases it.
func (m *model) consume(s *side) error {
	indices, err := m.ring.shared.Consumer()
	if err != nil {
		return err
	}
	s.step()
	s.end.attach()
	c := &Consumer{s.end, indices}
	for {
		view, err := c.Wait(frame, -1)
		if err = s.mayBeDead(err); err != nil {
			return err
		}
		if len(view) < frame {
			continue
		}
		number := c.Position() / frame
		first := ring.Uint64(view, 0).Load()
		for at := 0; at < frame; at += 248 {
			s.step()
			if got := ring.Uint64(view, at).Load(); got != first || got>>16 != number&(1<<48-1) {
				return fmt.Errorf("frame %d is torn: %#x at %d, %#x at 0", number, got, at, first)
			}
		}
		if number != m.released || number >= m.published || m.taken-number > 1 {
			return fmt.Errorf("frame %d comes after %d were released and %d taken, of %d", number, m.released, m.taken,
				m.published)
		}
		m.taken = number + 1 // again, if it was killed before the release
		s.step()
		c.ring.Release(frame)
		m.released = number + 1
		s.step()
		c.tell()
	}
}

// mayBeDead lets an error pass that says of a dead peer that it is dead.
func (s *side) mayBeDead(err error) error {
	if errors.Is(err, ErrPeerDied) {
		if s.m.sides[1-s.i].alive {
			if other := s.m.sides[1-s.i].end; other != nil && other.own != 0 { // it has come back, and has its end
				return fmt.Errorf("an end that is alive is said to be dead: %w", err)
			}
		}
		s.step()
		return nil
	}
	return err
}

// run kills sides so many times.
func (m *model) run(kills int) error {
	m.sides = [2]*side{{m: m, i: 0}, {m: m, i: 1}}
	m.start(0)
	m.start(1)
	defer m.kill(0)
	defer m.kill(1)
	for kills > 0 {
		i := m.choose(2)
		s := m.sides[i]
		switch act := m.choose(40); {
		case !s.alive && !s.told && act < 10:
			m.tell(i)
		case !s.alive && act < 20:
			m.start(i)
		case s.alive && act == 39: // not 0, which rapid likes best
			m.kill(i)
			kills--
		case s.alive && s.asleep == nil:
			if _, ok := s.next(); !ok || m.failed != nil {
				return m.failed
			}
		}
		a, b := m.sides[0], m.sides[1]
		if a.alive && b.alive && a.asleep != nil && b.asleep != nil {
			return fmt.Errorf("both sides sleep with %d published and %d released", m.published, m.released)
		}
		if held := m.published - m.released; held > 4 {
			return fmt.Errorf("%d frames in a ring of 4", held)
		}
	}
	return m.drain()
}

// drain lets the consumer take what is left, without kills.
func (m *model) drain() error {
	m.kill(0)
	if !m.sides[1].alive {
		m.start(1)
	}
	for n := 0; m.released < m.published; n++ {
		if m.sides[1].asleep != nil {
			if n > 10_000 || m.sides[0].told {
				return fmt.Errorf("the consumer sleeps with %d published and %d released", m.published, m.released)
			}
			m.tell(0)
			continue
		}
		if _, ok := m.sides[1].next(); !ok || m.failed != nil {
			return m.failed
		}
	}
	return nil
}

func modelRing(t testing.TB) *Ring {
	t.Helper()
	r, err := Create(RingConfig{Size: 1, Spin: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func TestEitherSideMayDieAtAnyStep(t *testing.T) {
	r := modelRing(t)
	m := &model{ring: r}
	testenv.CheckFew(t, func(t *rapid.T) {
		m.choose = func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }
		if err := m.run(10); err != nil {
			t.Fatal(err)
		}
	})
}

func TestManyDeaths(t *testing.T) {
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	m := &model{ring: modelRing(t), choose: rng.IntN}
	for done := 0; done < *modelKills; done += 1000 {
		if err := m.run(min(1000, *modelKills-done)); err != nil {
			t.Fatal(err)
		}
	}
	full, empty := m.sides[0].sleeps, m.sides[1].sleeps
	if m.released < uint64(*modelKills/10) || full == 0 || empty == 0 {
		t.Errorf("%d frames, %d sleeps at a full ring and %d at an empty one in %d kills: too few to say anything",
			m.released, full, empty, *modelKills)
	}
	t.Logf("%d kills, %d frames, %d sleeps at a full ring, %d at an empty one in the last thousand", *modelKills,
		m.released, full, empty)
}
