package suite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/ipc"
	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/rt"
)

// programVariable is set for a program that is measured.
const programVariable = "TALLYWHEEL_LAB_SUITE"

// priority is in SCHED_FIFO, of every program, where that is allowed.
const priority = 80

// Ours is the program in Go, which is this one, executed again.
func Ours(o func() Observer) contestant.Work {
	return func(t *contestant.Turn) error {
		if os.Getenv(programVariable) != "" {
			return program(t)
		}
		return measure(t, o(), append([]string{"/proc/self/exe"}, os.Args[1:]...))
	}
}

// Others is a program of [Programs].
func Others(o func() Observer) contestant.Work {
	return func(t *contestant.Turn) error {
		argv := strings.Split(t.Text("program"), "\n")
		return measure(t, o(),
			append(argv, "suite", "trigger="+t.Text("trigger"), fmt.Sprintf("seconds=%g", t.Seconds().Seconds())))
	}
}

// The names of contestants in other languages.
const (
	C      = "c"
	Rust   = "rust"
	Python = "python"
)

// Programs are those of other languages, by the contestant's name.
var Programs = map[string]lab.Program{
	C: lab.C("suite.c", "apt install gcc"), Rust: lab.Rust("suite.rs"),
	Python: lab.Python("suite.py", "ctypes", "apt install python3"),
}

// Scene says how a contestant of another language is called: an argument a line.
func Scene(b *lab.Bench, c *lab.Contestant, _ lab.Params) (*lab.Scene, error) {
	p, other := Programs[c.Name]
	if !other {
		return &lab.Scene{}, nil
	}
	argv, err := b.Program(p)
	return &lab.Scene{Params: lab.Params{"program": strings.Join(argv, "\n")}}, err
}

// totals is what is aggregated.
type totals struct {
	bins    [65]uint64
	n, sum  uint64
	most    uint64
	squares float64
}

func (a *totals) add(v uint64) {
	a.bins[bits.Len64(v)]++
	a.n++
	a.sum += v
	a.squares += float64(v) * float64(v)
	a.most = max(a.most, v)
}

// filler is the end of the queue that the program has.
type filler struct{ *ipc.Producer }

func (f filler) push(v ...uint64) error {
	b, err := f.Space(recordSize)
	if err != nil {
		return err
	}
	if len(b) < recordSize {
		return errors.New("the queue of results is full")
	}
	for i := range recordSize / 8 {
		x := uint64(0)
		if i < len(v) {
			x = v[i]
		}
		binary.NativeEndian.PutUint64(b[8*i:], x)
	}
	f.Publish(recordSize)
	return nil
}

// tellClock pushes what the ticks are at a time: the closest of some pairs.
func (f filler) tellClock() error {
	least, at := ^uint64(0), pair{}
	for range 100 {
		before := sys.Ticks()
		ns := rt.Now()
		if took := sys.Ticks() - before; took < least {
			least, at = took, pair{uint64(ns), before + took/2, uint64(sys.ThreadID())}
		}
	}
	return f.push(kindClock, at.ns, at.ticks, at.thread)
}

// program is triggered, stamps the time, aggregates, and pushes that.
func program(t *contestant.Turn) error {
	r, err := ipc.Open(os.NewFile(3, "queue"), ipc.RingConfig{Spin: -1})
	if err != nil {
		return err
	}
	p, err := r.Producer()
	if err != nil {
		return err
	}
	defer p.Close()
	f := filler{p}
	runtime.LockOSThread() // never unlocked: the process ends with it
	if err := rt.SetTimerSlack(time.Nanosecond); err != nil {
		return err
	}
	_ = rt.SetScheduling(rt.Scheduling{Policy: rt.FIFO, Priority: priority, ResetOnFork: true}) // where it is allowed
	if err := f.tellClock(); err != nil {
		return err
	}
	if _, err := event(); err != nil {
		return err
	}
	if err := f.samples(t.Text("trigger") == "timer", t.Seconds()); err != nil {
		return err
	}
	return f.tellClock()
}

// samples is what is measured. The runtime's scheduler is told of each wait, as it has to be in a
// program that does anything else.
func (f filler) samples(timer bool, length time.Duration) error {
	var all totals
	push, last, next := uint64(0), sys.Ticks(), rt.Now()+every
	for end := next + length; next < end; {
		due := uint64(0)
		if timer {
			due = uint64(next)
			if err := rt.SleepUntil(next); err != nil {
				return err
			}
		} else if n, err := event(); err != nil {
			return err
		} else if n >= lastEvent {
			break
		}
		woke := sys.Ticks()
		stamped := sys.Ticks()
		all.add(woke - last)
		aggregated := sys.Ticks()
		if err := f.push(kindSample, due, woke, stamped, aggregated, push); err != nil {
			return err
		}
		push, last = sys.Ticks()-aggregated, woke
		for now := rt.Now(); timer && next <= now; {
			next += every
		}
	}
	if all.n == 0 {
		return errors.New("it was not triggered once")
	}
	return nil
}

// event waits for the next number of the eventfd.
func event() (uint64, error) {
	b := make([]byte, 8)
	for {
		switch _, errno := sys.ReadBlocking(4, b); errno {
		case 0:
			return binary.NativeEndian.Uint64(b), nil
		case syscall.EINTR:
		default:
			return 0, os.NewSyscallError("read", errno)
		}
	}
}
