// Package suite measures programs in several languages by one protocol: each is triggered by a
// timer or by an event, stamps the time by the processor's counter, aggregates, and pushes a result
// into a queue in shared memory, from which this side takes it. They stand in lab/contestants:
// suite.c, suite.rs, suite.py; the one in Go is this package's.
package suite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/ipc"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/rt"
)

// The queue is a ring of package ipc, which a program fills with records of 64 bytes, eight numbers
// each in the byte order of the machine:
//
//	kind: clock   ns of CLOCK_MONOTONIC │ ticks at that moment │ the thread, 0: the first one   the first record and the last
//	kind: sample  due in ns, 0 for an event │ ticks: woken │ stamped │ aggregated │ what the push before took
//
// lab/contestants has its end in C (queue.h), Rust (queue.rs) and Python (suite.py).
const (
	recordSize = 64
	queueSize  = 1 << 20

	kindClock  = 1
	kindSample = 2

	every     = 200 * time.Microsecond // between triggers; an event comes so long behind the record of the one before
	batch     = 512                    // records that who empties the queue sleeps for, where it makes no events
	lastEvent = 1000                   // the number that ends a program which waits for events
	patience  = 10 * time.Second       // that a program may take to its next record
)

// sample is a record, its times in ticks but for due.
type sample struct{ due, woke, stamped, aggregated, push uint64 }

// pair is what the ticks were at a time, and who said so.
type pair struct{ ns, ticks, thread uint64 }

// Sample is one trigger. Times are of CLOCK_MONOTONIC, in ns.
type Sample struct {
	Due, Woke        float64 // when it was to come, or was made; the first line behind it
	Stamp, Aggregate float64 // what those parts took
	Push             float64 // what it took to push the sample before
}

// Observer looks at a program.
type Observer interface {
	Begin(thread int) error // told of the thread that is going to be triggered
	Report(t *contestant.Turn, took time.Duration, ticksPerNs float64, all []Sample) error
}

// drained is what came of a queue.
type drained struct {
	clocks  []pair
	samples []sample
}

func (d *drained) take(b []byte) error {
	var v [8]uint64
	for i := range v {
		v[i] = binary.NativeEndian.Uint64(b[8*i:])
	}
	switch v[0] {
	case kindClock:
		d.clocks = append(d.clocks, pair{v[1], v[2], v[3]})
	case kindSample:
		d.samples = append(d.samples, sample{v[1], v[2], v[3], v[4], v[5]})
	default:
		return fmt.Errorf("a record of kind %d", v[0])
	}
	return nil
}

// receive takes what is there as soon as that is n records, or no more come.
func (d *drained) receive(c *ipc.Consumer, n int) error {
	view, err := c.Wait(n*recordSize, patience)
	whole := len(view) / recordSize * recordSize
	for at := 0; at < whole; at += recordSize {
		if err := d.take(view[at:]); err != nil {
			return err
		}
	}
	c.Release(whole)
	return err
}

// measure runs a program, which is triggered by a timer of its own or by our events. What it pushes
// into the queue are the figures.
func measure(t *contestant.Turn, o Observer, argv []string) error {
	r, err := ipc.Create(ipc.RingConfig{Name: "tallywheel-suite", Size: queueSize, Spin: -1})
	if err != nil {
		return err
	}
	defer r.Close()
	queue, err := r.Consumer()
	if err != nil {
		return err
	}
	events, err := sys.Eventfd()
	if err != nil {
		return err
	}
	if err := syscall.SetNonblock(events, false); err != nil { // the program waits in read(2)
		return err
	}
	f := os.NewFile(uintptr(events), "events")
	defer f.Close()
	pid, end, err := begin(argv, queue, r.File(), f)
	if err != nil {
		return err
	}
	d := &drained{}
	if err := d.receive(queue, 1); err != nil { // it is there, and has told its clock
		return errors.Join(err, end())
	}
	if len(d.clocks) > 0 && d.clocks[0].thread != 0 {
		pid = int(d.clocks[0].thread)
	}
	if err := o.Begin(pid); err != nil {
		signal(events, lastEvent) // it starts, and ends with the next number
		signal(events, lastEvent)
		return errors.Join(err, end())
	}
	until, err := t.Ready()
	if err != nil {
		return errors.Join(err, end())
	}
	signal(events, 1)
	if t.Text("trigger") == "event" {
		err = d.trigger(queue, events, until)
	}
	for err == nil {
		err = d.receive(queue, batch)
	}
	if err := end(); err != nil {
		return err
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	took, err := t.Done()
	if err != nil {
		return err
	}
	all, perNs, err := d.all()
	if err != nil {
		return err
	}
	return o.Report(t, took, perNs, all)
}

// begin starts the program, with the queue as descriptor 3 and the events as 4. end waits for it,
// and kills it if it does not end.
func begin(argv []string, queue *ipc.Consumer, files ...*os.File) (pid int, end func() error, err error) {
	p := exec.Command(argv[0], argv[1:]...)
	p.Env, p.ExtraFiles, p.Stderr = append(os.Environ(), programVariable+"=1"), files, os.Stderr
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.WaitDelay = time.Second
	if err := sys.Start(p.Start); err != nil {
		return 0, nil, err
	}
	ended := make(chan error, 1)
	go func() {
		err := p.Wait()
		queue.Interrupt(errors.Join(io.EOF, err)) // what it has pushed still comes
		ended <- err
	}()
	return p.Process.Pid, func() error {
		select {
		case err := <-ended:
			return err
		case <-time.After(patience):
			return errors.Join(errors.New("the program does not end"), p.Process.Kill(), <-ended)
		}
	}, nil
}

func signal(events int, n uint64) {
	b := make([]byte, 8)
	binary.NativeEndian.PutUint64(b, n)
	_, _ = sys.Write(events, b) // a counter far from its end takes it
}

// trigger makes events until then, each some time behind the record of the one before, and notes
// when each was due. Its thread has the first CPU.
func (d *drained) trigger(queue *ipc.Consumer, events int, until time.Time) error {
	runtime.LockOSThread() // never unlocked: the CPU is its own
	cpus, err := rt.Affinity(0)
	if err != nil {
		return err
	}
	if _, err := rt.Pin(cpus[:1]); err != nil {
		return err
	}
	defer signal(events, lastEvent)
	if err := taken(events); err != nil {
		return err
	}
	const least = 2 // in any case, also of a turn that is over: all wants so many
	for made := 0; made < least || time.Now().Before(until); made++ {
		if err := rt.SleepUntil(rt.Now() + every); err != nil {
			return err
		}
		due := rt.Now()
		signal(events, 1)
		n := len(d.samples)
		if err := d.receive(queue, 1); err != nil {
			return err
		}
		if len(d.samples) > n {
			d.samples[n].due = uint64(due)
		}
	}
	return nil
}

// taken waits until a program has taken the number that starts it: the next one would be added to
// it, and the program wait for an event that has been.
func taken(events int) error {
	for late := time.Now().Add(patience); time.Now().Before(late); {
		const none = -1
		waits, _, err := sys.PollIn(events, none, 0)
		if err != nil || !waits {
			return err
		}
		if err := rt.SleepUntil(rt.Now() + every); err != nil {
			return err
		}
	}
	return errors.New("the program does not start")
}

// all are the samples in ns: the ticks are held to the clock by the first record and the last.
func (d *drained) all() (all []Sample, ticksPerNs float64, err error) {
	if len(d.clocks) != 2 || d.clocks[1].ticks <= d.clocks[0].ticks || d.clocks[1].ns <= d.clocks[0].ns {
		return nil, 0, fmt.Errorf("%d pairs of clock and ticks, of which the second must be the later: %v",
			len(d.clocks), d.clocks)
	}
	if len(d.samples) < 2 {
		return nil, 0, fmt.Errorf("%d results in the queue", len(d.samples))
	}
	from, to := d.clocks[0], d.clocks[1]
	nsOf := float64(to.ns-from.ns) / float64(to.ticks-from.ticks)
	for _, s := range d.samples {
		all = append(all, Sample{
			Due: float64(s.due), Woke: float64(from.ns) + float64(int64(s.woke-from.ticks))*nsOf,
			Stamp: float64(s.stamped-s.woke) * nsOf, Aggregate: float64(s.aggregated-s.stamped) * nsOf,
			Push: float64(s.push) * nsOf,
		})
	}
	return all, 1 / nsOf, nil
}
