package isolate

import (
	"os"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/ring"
)

// Bell is a word in shared memory at which one process sleeps, and which others ring. It says
// nothing of why: who is woken looks everywhere. Its memory outlives both.
//
// Who sleeps stores asleep, looks once more, and sleeps while it is there. Who has something to
// tell publishes that first, and then takes asleep away. Both are operations of the one order that
// all sequentially consistent ones have, so either the sleeper's look finds what is published, or
// the other finds it asleep. Who is killed in between leaves a sleeper: it looks again each
// longestSleep.
//
// Who dozes is woken by what is urgent alone, and looks again soon: where so much comes that each
// bell would cost more than what it is rung for, that is one wake-up for many.
type Bell struct {
	mem  *ring.Shared
	word *atomic.Uint32
	live *atomic.Uint64 // when the reader lived last, ns since 1970: about each second, and at its end
	then uint64         // … as it was when this process had opened the bell
}

// What the word says; 0: nobody sleeps.
const (
	asleep = 1 + iota
	dozing
)

// longestSleep is how long something may lie in a spool of which a killed reader could not tell.
const longestSleep = time.Second

// keptSleep is how long a sleep that keeps its P lasts at most, where no monitor ends it.
const keptSleep = 20 * time.Millisecond

// DozeTime is how long a doze lasts at most: as long as a batch of the log is open by default,
// behind which the bell is rung. A look touches the memory of each source, so shorter dozes cost
// more than what they show sooner. The smallest spool holds so much at 5 MB/s.
const DozeTime = 50 * time.Millisecond

// NewBell makes a bell.
func NewBell() (*Bell, error) {
	mem, err := ring.NewShared("tallywheel-bell", os.Getpagesize(), 16)
	if err != nil {
		return nil, err
	}
	return bellOf(mem), nil
}

// OpenBell maps a bell that another process has made. It takes f over, unless there is an error.
func OpenBell(f *os.File) (*Bell, error) {
	mem, err := ring.OpenShared(f)
	if err != nil {
		return nil, err
	}
	return bellOf(mem), nil
}

func bellOf(mem *ring.Shared) *Bell {
	b := &Bell{mem: mem, word: ring.Uint32(mem.Owner(), 0), live: new(atomic.Uint64)}
	if len(mem.Owner()) >= 16 { // else it is of an older program
		b.live = ring.Uint64(mem.Owner(), 8)
	}
	b.then = b.live.Load()
	return b
}

// Lives notes that the reader does, for one that comes when nobody is left who saw its end.
func (b *Bell) Lives(now time.Time) { b.live.Store(uint64(now.UnixNano())) }

// LivedAt is when the reader before this process has noted that last, ns since 1970; 0: it has not.
func (b *Bell) LivedAt() int64 { return int64(b.then) }

// File is the descriptor of its memory, to be passed on.
func (b *Bell) File() *os.File { return b.mem.File() }

// Ring wakes who sleeps or dozes there.
func (b *Bell) Ring() {
	if b.word.Load() != 0 && b.word.Swap(0) != 0 {
		sys.FutexWake(b.word)
	}
}

// Tell wakes who sleeps there; who dozes will look by itself.
func (b *Bell) Tell() {
	if b.word.Load() == asleep && b.word.CompareAndSwap(asleep, 0) {
		sys.FutexWake(b.word)
	}
}

// Sleep returns when the bell was rung, when look finds something to do, or after a while. Only one
// goroutine may sleep there. With keep it keeps its P meanwhile, for some 10 ms at most. Without,
// the runtime's monitor wakes to hand that on, which costs more than what the bell is rung for
// where that is often. It reports whether there is something to do.
func (b *Bell) Sleep(keep bool, look func() bool) (rung bool) {
	b.word.Store(asleep)
	switch {
	case look():
		b.word.Store(0)
		return true
	case !keep:
		sys.FutexWait(b.word, asleep, longestSleep)
	case sys.Interrupts:
		sys.FutexWaitRaw(b.word, asleep, longestSleep) // the monitor ends it earlier
	default:
		sys.FutexWaitRaw(b.word, asleep, keptSleep)
	}
	return b.word.Swap(0) == 0
}

// Doze returns after DozeTime, when the bell is rung, or at once if look says so. It keeps its P,
// but for moments: the monitor has it yield each 10 ms. Only one goroutine may sleep or doze there.
func (b *Bell) Doze(look func() bool) {
	b.word.Store(dozing)
	if !look() {
		until := time.Now().Add(DozeTime)
		for left := DozeTime; left > 0 && b.word.Load() == dozing; left = time.Until(until) {
			sys.FutexWaitRaw(b.word, dozing, left)
		}
	}
	b.word.Store(0)
}
