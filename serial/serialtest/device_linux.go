package serialtest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/tally128"
)

// Condition is how a device sends.
type Condition string

// The conditions of the load.
const (
	Burst     Condition = "burst"     // 10 ms at 500 KB/s, ten times a second
	Steady    Condition = "steady"    // 400 KB/s all the time
	Disturbed Condition = "disturbed" // as steady, with every kind of fault
)

// Conditions lists them.
func Conditions() []Condition { return []Condition{Burst, Steady, Disturbed} }

const (
	steadyRate  = 400_000 // bytes a second
	burstRate   = 500_000
	burstLength = 10 * time.Millisecond
	burstPeriod = 100 * time.Millisecond

	tick = 2 * time.Millisecond // a device sends what is due once a tick
)

// Truth is what a device did. Counts are of frames unless the name says otherwise.
type Truth struct {
	Made       uint64 `json:"made"`       // numbered, sent or not
	Sent       uint64 `json:"sent"`       // whole and valid, handed over, repetitions included
	Unseen     uint64 `json:"unseen"`     // never sent: dropped, or made while unplugged
	Dropped    uint64 `json:"dropped"`    // … of which dropped on purpose
	Corrupted  uint64 `json:"corrupted"`  // sent damaged: bytes flipped, lost or repeated
	Duplicated uint64 `json:"duplicated"` // sent twice
	Reordered  uint64 `json:"reordered"`  // sent behind a later one
	Stalls     uint64 `json:"stalls"`     // pauses, made up for later
	Outages    uint64 `json:"outages"`    // times the port was unplugged
	Bytes      uint64 `json:"bytes"`      // handed over
	Blocked    uint64 `json:"blocked"`    // times the pty took no more: delay, not loss
	Undrained  uint64 `json:"undrained"`  // times the port was unplugged with bytes not read
	Behind     uint64 `json:"behind"`     // bytes of frames that were due at the end, and not made
}

// Plan is how a device sends and what harm it does. The zero value of a fault's mean switches it
// off.
type Plan struct {
	Rate      int // bytes a second
	Bursts    bool
	Device    uint32
	Epoch     uint32
	Seed      uint64
	Drop      int // a run of one to three frames, every so many frames on average
	Duplicate int
	Corrupt   int
	Reorder   int
	Stall     int
	Unplug    int

	// Each, if not 0, takes chance out of how many faults there are: every kind that is not
	// switched off comes so many times before any comes again, in an order of chance, one fault in
	// Gap frames on average; and a device whose time is over goes on until the first such round is
	// done. The means say nothing else then.
	Each int
	Gap  int
}

// PlanFor is the plan of a condition.
func PlanFor(c Condition, device uint32, seed uint64) (Plan, error) {
	p := Plan{Rate: steadyRate, Device: device, Epoch: uint32(time.Now().Unix()), Seed: seed}
	switch c {
	case Burst:
		p.Rate, p.Bursts = burstRate, true
	case Steady:
	case Disturbed:
		p.Drop, p.Duplicate, p.Corrupt, p.Reorder, p.Stall, p.Unplug = 1500, 1500, 1500, 1500, 6000, 25000
	default:
		return p, fmt.Errorf("condition %q: want one of %v", c, Conditions())
	}
	return p, nil
}

// apart is the number of clean frames between two faults, so that each has one effect.
const apart = 8

// kind is a kind of fault.
type kind int

const (
	none kind = iota
	drop
	duplicate
	corrupt
	reorder
	stall
	unplug
)

// means are those of a plan's kinds of faults, from drop on, in the order in which chance decides.
func (p Plan) means() []int {
	return []int{p.Drop, p.Duplicate, p.Corrupt, p.Reorder, p.Stall, p.Unplug}
}

// Device sends frames into a port. It belongs to one goroutine.
type Device struct {
	Truth Truth

	plan  Plan
	port  *Port
	rng   *rand.Rand
	seq   uint64
	clean int // frames since the last fault
	out   []byte
	probe tally128.Decoder
	late  []byte // a frame held back, to be sent behind the next

	// With Plan.Each.
	deck  []kind // faults of this round that are still to come
	wait  int    // clean frames until the next one
	dealt int    // rounds that were begun
}

// NewDevice puts a device behind a port.
func NewDevice(port *Port, plan Plan) *Device {
	return &Device{plan: plan, port: port, rng: rand.New(rand.NewPCG(plan.Seed, uint64(plan.Device)))}
}

// Run sends until the context ends, then ends cleanly: an undamaged frame last, so that no loss is
// left open. With Plan.Each a deadline alone does not end it: see there.
func (d *Device) Run(ctx context.Context) error {
	start := time.Now()
	var due, sent float64
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for d.goesOn(ctx) {
		select {
		case <-d.ended(ctx):
		case <-ticker.C:
		}
		due = d.due(time.Since(start))
		for sent+tally128.Size <= due && d.goesOn(ctx) {
			sent += tally128.Size
			pause, err := d.step(ctx)
			if err != nil {
				return err
			}
			if pause > 0 { // a stall is made up for; what an unplugged device makes is lost
				time.Sleep(pause)
			}
		}
		if err := d.flush(ctx); err != nil {
			return err
		}
	}
	behind := max(0, d.due(time.Since(start))-sent)
	d.Truth.Behind = uint64(behind/tally128.Size) * tally128.Size
	return d.last()
}

// goesOn reports whether there is more to do: there is time left, or no more than the time is over
// and faults are still to come.
func (d *Device) goesOn(ctx context.Context) bool {
	return ctx.Err() == nil || d.owes() && errors.Is(ctx.Err(), context.DeadlineExceeded)
}

// ended is closed when the context ends, if there is nothing to do then.
func (d *Device) ended(ctx context.Context) <-chan struct{} {
	if d.owes() && ctx.Err() != nil {
		return nil // the next tick comes
	}
	return ctx.Done()
}

// owes reports whether faults of the first round are still to come.
func (d *Device) owes() bool {
	return d.plan.Each > 0 && (d.dealt == 0 || d.dealt == 1 && (len(d.deck) > 0 || d.late != nil))
}

// due is the number of bytes that should have been sent after so long.
func (d *Device) due(after time.Duration) float64 {
	if !d.plan.Bursts {
		return float64(d.plan.Rate) * after.Seconds()
	}
	whole := float64(after / burstPeriod)
	part := min(after%burstPeriod, burstLength)
	return float64(d.plan.Rate) * (whole*burstLength.Seconds() + part.Seconds())
}

// last sends two clean frames, with time for them to be taken.
func (d *Device) last() error {
	d.clean = -1 << 30
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := d.step(ctx); err != nil {
		return err
	}
	if err := d.flush(ctx); err != nil {
		return err
	}
	return d.deliver(2 * time.Second)
}

// deliver sends a frame and waits until all has been read.
func (d *Device) deliver(timeout time.Duration) error {
	f := d.next()
	all, err := d.port.Deliver(f, timeout)
	if err != nil {
		return err
	}
	d.Truth.Sent++
	d.Truth.Bytes += uint64(len(f))
	if !all {
		d.Truth.Undrained++
	}
	return nil
}

func (d *Device) next() []byte {
	var payload [tally128.PayloadSize]byte
	for i := 0; i+8 <= len(payload); i += 8 {
		binary.LittleEndian.PutUint64(payload[i:], d.rng.Uint64())
	}
	f := make([]byte, tally128.Size)
	tally128.Encode(f, tally128.Header{
		Device: d.plan.Device, Epoch: d.plan.Epoch, Seq: d.seq, DeviceTime: time.Now().UnixNano(),
	}, payload[:])
	d.seq++
	d.Truth.Made++
	return f
}

// chance is true once in mean frames on average, but not near another fault.
func (d *Device) chance(mean int) bool {
	if mean <= 0 || d.clean < apart || d.rng.IntN(mean) > 0 {
		return false
	}
	d.clean = 0
	return true
}

// harm is the fault that comes next, if one does.
func (d *Device) harm() kind {
	if d.plan.Each > 0 {
		return d.dealtOut()
	}
	for i, mean := range d.plan.means() {
		if d.chance(mean) {
			return drop + kind(i)
		}
	}
	return none
}

// dealtOut is the fault that comes next where their number is fixed.
func (d *Device) dealtOut() kind {
	if d.clean < 0 { // the last frames are clean
		return none
	}
	if len(d.deck) == 0 {
		for i, mean := range d.plan.means() {
			if mean > 0 {
				d.deck = append(d.deck, slices.Repeat([]kind{drop + kind(i)}, d.plan.Each)...)
			}
		}
		d.rng.Shuffle(len(d.deck), func(i, j int) { d.deck[i], d.deck[j] = d.deck[j], d.deck[i] })
		d.dealt++
		d.wait = d.gap()
	}
	if d.clean < d.wait || len(d.deck) == 0 {
		return none
	}
	f := d.deck[0]
	d.deck, d.clean, d.wait = d.deck[1:], 0, d.gap()
	return f
}

// gap is a number of clean frames between two faults, Plan.Gap on average.
func (d *Device) gap() int { return apart + d.rng.IntN(max(1, 2*(d.plan.Gap-apart)+1)) }

// step makes one frame, or one fault, and returns how long to pause.
func (d *Device) step(ctx context.Context) (time.Duration, error) {
	d.clean++
	if d.late != nil {
		f := d.next()
		d.send(f)
		d.send(d.late)
		d.late = nil
		d.Truth.Reordered++
		return 0, nil
	}
	switch d.harm() {
	case drop:
		for range 1 + d.rng.IntN(3) {
			d.next()
			d.Truth.Dropped++
			d.Truth.Unseen++
		}
	case duplicate:
		f := d.next()
		d.send(f)
		d.send(f)
		d.Truth.Duplicated++
	case corrupt:
		d.out = append(d.out, d.damage(d.next())...)
		d.Truth.Corrupted++
	case reorder:
		d.late = d.next()
	case stall:
		d.Truth.Stalls++
		return time.Duration(20+d.rng.IntN(80)) * time.Millisecond, nil
	case unplug:
		return 0, d.unplug(ctx)
	default:
		d.send(d.next())
	}
	return 0, nil
}

func (d *Device) send(f []byte) {
	d.out = append(d.out, f...)
	d.Truth.Sent++
}

// damage flips, loses or repeats bytes of a frame, such that no valid frame is left in it.
func (d *Device) damage(f []byte) []byte {
	for {
		b := append([]byte(nil), f...)
		at, n := 3+d.rng.IntN(len(f)-6), 1+d.rng.IntN(40)
		switch d.rng.IntN(4) {
		case 0: // bytes lost
			b = append(b[:at], b[min(len(b), at+n):]...)
		case 1: // bytes repeated
			end := min(len(b), at+n)
			b = append(append(append([]byte(nil), b[:end]...), f[at:end]...), f[end:]...)
		case 2: // the sync destroyed
			b[d.rng.IntN(2)] ^= byte(1 + d.rng.IntN(255))
		default:
			for range n {
				b[d.rng.IntN(len(b))] ^= byte(1 + d.rng.IntN(255))
			}
		}
		var found hits
		rest := d.probe.Decode(b, &found)
		d.probe.Break(b[rest:], frame.Closed, &found)
		if found == 0 {
			return b
		}
	}
}

// hits counts valid frames.
type hits int

func (h *hits) Frame(*frame.Frame) { *h++ }
func (h *hits) Damaged()           {}
func (h *hits) Skip([]byte)        {}

// unplug takes the port away for a while. Frames made meanwhile are lost.
func (d *Device) unplug(ctx context.Context) error {
	if err := d.flush(ctx); err != nil {
		return err
	}
	if err := d.deliver(5 * time.Second); err != nil {
		return err
	}
	if err := d.port.Unplug(); err != nil {
		return err
	}
	d.Truth.Outages++
	for range 1 + d.rng.IntN(20) {
		d.next()
		d.Truth.Unseen++
	}
	time.Sleep(time.Duration(50+d.rng.IntN(150)) * time.Millisecond)
	return d.port.Plug()
}

// flush hands over what is to be sent. When the context ends it goes on, for a frame is never cut,
// until nobody has read anything for 5 s.
func (d *Device) flush(ctx context.Context) error {
	giveUp := time.Time{}
	for len(d.out) > 0 {
		n, err := d.port.Write(d.out)
		if err != nil {
			return err
		}
		d.Truth.Bytes += uint64(n)
		if d.out = d.out[n:]; len(d.out) == 0 {
			break
		}
		d.Truth.Blocked++
		if ctx.Err() != nil && (giveUp.IsZero() || n > 0) {
			giveUp = time.Now().Add(5 * time.Second)
		}
		if !giveUp.IsZero() && time.Now().After(giveUp) {
			return fmt.Errorf("%s: nobody reads: %d bytes left", d.port.Link, len(d.out))
		}
		time.Sleep(tick)
	}
	d.out = d.out[:0]
	return nil
}
