package recorder

import (
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/fault"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/reader"
	"github.com/tallywheel/tallywheel/seglog"
)

var soakHours = flag.Float64("hours", 0.1,
	"fake hours that TestEverythingAtOnce lasts; from 6 on it also holds what grows to be flat")

// TestEverythingAtOnce records for hours of fake time with one process: sources of every framing
// and carrier whose devices harm, connect again and again and keep a rhythm; lines that are
// unplugged, a disk that is full, slow, or short of descriptors, a clock that is set, reloads,
// acknowledgements, readers, a command that is told of troubles, and a log that keeps 8 MiB.
//
// The books must balance and have every byte, the levels be right at the end, and nothing may grow
// after the second hour: neither heap, goroutines and what is open, nor any list or map of the
// recorder, nor its files.
func TestEverythingAtOnce(t *testing.T) {
	tell, err := exec.LookPath("true")
	if err != nil {
		t.Skip("SKIPPED: there is no program true to be told of troubles; apt install coreutils")
	}
	s := &stage{
		t: t, seed: 1, rng: rand.New(rand.NewPCG(1, 16)), dir: filepath.Join(t.TempDir(), "0"), bad: &diskTrouble{},
		tell: []string{tell}, log: config.Log{Segment: 1 << 20, Sync: "batch", Keep: config.Keep{Size: 8 << 20}},
	}
	defer func() {
		openFiles, openReader, openSource, openSpill, uptime = logFiles, reader.New, newOpener, newSpillFile, realUptime
	}()
	began := time.Now()
	o := &soak{stage: s}
	synctest.Test(t, func(*testing.T) { o.run(time.Duration(*soakHours * float64(time.Hour))) })
	for _, c := range s.complaints {
		t.Error(c)
	}
	if t.Failed() {
		t.Logf("it said:\n…%s", o.said.b)
	}
	t.Logf("%.1f fake hours in %v: %v; %d looks, %d records read, %d wires", *soakHours,
		time.Since(began).Round(time.Second), o.turns,
		o.looks.Load(), o.passed.Load(), s.k.made)
}

// soak is a stage that goes on for hours.
type soak struct {
	*stage
	said          saying
	quit          chan struct{}
	looking       sync.WaitGroup
	looks, passed atomic.Int64 // sheets looked at; records read
	brief         bool
	done          int              // turns
	turns         map[string]int   // … by name
	tears         uint64           // how often a frame may have been cut
	grown         []map[string]int // how much there was of each thing, by its path, at each measure
}

// saying keeps the end of what is said.
type saying struct {
	mu sync.Mutex
	b  []byte
}

func (s *saying) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	const most = 64 << 10
	if s.b == nil {
		s.b = make([]byte, 0, 2*most)
	}
	if len(s.b)+len(b) > cap(s.b) {
		s.b = s.b[:copy(s.b, s.b[max(0, len(s.b)-most):])]
	}
	s.b = append(s.b, b[:min(len(b), most)]...)
	return len(b), nil
}

func (o *soak) run(length time.Duration) {
	o.began, o.quit, o.turns, o.brief = time.Now(), make(chan struct{}), map[string]int{}, length < time.Hour
	o.setUp()
	r, err := Start(o.config(), slog.New(slog.NewTextHandler(&o.said, nil)))
	if err != nil {
		panic(err)
	}
	o.r = r
	for _, f := range o.feeders {
		f.begin()
	}
	o.looking.Go(o.follow)
	o.looking.Go(o.watch)
	every := length / measures
	for next := every; time.Since(o.began) < length; {
		o.turn()
		if time.Since(o.began) >= next {
			o.measure()
			next += every
		}
	}
	o.levelsAtTheEnd()
	close(o.quit)
	o.looking.Wait()
	for _, f := range o.feeders {
		f.end()
	}
	told := o.r.Notified()["command"]
	if o.stop("end"); told.Sent == 0 {
		o.complain("nobody was told of a trouble: %+v", told)
	}
	o.judgeSums()
	if !o.brief {
		o.flat()
	}
}

// manyDevices is a source of which it is noticed late what did not come.
const manyDevices = "x8"

// setUp has three sources of each framing, each with another carrier.
func (o *soak) setUp() {
	o.k = newKernel()
	o.k.brief, o.k.life, o.disk, o.read = true, &life{}, fault.New(), "ring"
	if err := os.Mkdir(o.dir, 0o755); err != nil {
		panic(err)
	}
	for n := range 24 {
		kind := []string{"tally128", "cobs", "slip", "line", "ubx", "length", "modbus", "raw"}[n%8]
		rng := rand.New(rand.NewPCG(7, uint64(n)))
		f := &feeder{
			id: fmt.Sprintf("x%d", n), source: fmt.Sprintf("x%d", n), rng: rng, devices: 1, next: map[uint32]uint64{},
			m:     maker{kind: kind, rng: rng, size: 60},
			burst: 6, pause: 2 * time.Second, harm: pick(rng, 0, 3), tempo: newTempo(rng, kind),
			e: o.k.newEndpoint(carriages[(n+n/8)%4], 64<<10, held[kind]),
		}
		if f.id == manyDevices {
			f.devices = 300
		}
		if f.tempo.interval > 0 {
			f.tempo.interval, f.tempo.tolerance, f.tempo.silence, f.burst = 2*time.Second, time.Second, 20*time.Second,
				1
		}
		o.feeders = append(o.feeders, f)
		o.sources = append(o.sources, o.source(f))
	}
	openFiles = func(config.Log, *asyncfile.ChainStats, *slog.Logger) (seglog.FS, error) {
		return simDisk{o.disk, o.bad}, nil
	}
	openReader = func(reader.Config) (reader.Reader, error) {
		return &simReader{
			k: o.k, life: o.k.life, rng: rand.New(rand.NewPCG(3, 3)), most: 4096, wall: o.wall,
			live: map[*simHandle]bool{},
		}, nil
	}
	openSource = func(c config.Source) opener {
		for _, f := range o.feeders {
			if f.id == c.ID {
				return f.e.opener(o.k.life)
			}
		}
		return (&endpoint{k: o.k, kind: byLine, away: true}).opener(o.k.life)
	}
	openSpill = o.over.create
	o.over.mend()
	uptime = func() (time.Duration, error) { return time.Since(o.began) - time.Duration(o.hidden.Load()), nil }
}

// turn does one thing, and lets some time pass.
func (o *soak) turn() {
	turns := []struct {
		name string
		do   func()
	}{
		{"storm", o.storm},
		{"unplug", o.unplug},
		{"full", func() {
			o.disk.SetFree(o.rng.Int64N(1 << 20))
			o.pass(time.Duration(o.rng.IntN(20)) * time.Second)
			o.disk.SetFree(-1)
		}},
		{"slow", func() {
			o.bad.slow(time.Duration(20+o.rng.IntN(1500)) * time.Millisecond)
			o.pass(10 * time.Second)
			o.bad.slow(0)
		}},
		{"descriptors", func() {
			o.disk.SetInject(failing(rand.New(rand.NewPCG(o.rng.Uint64(), 1)), syscall.EMFILE, 1+o.rng.IntN(10),
				fault.OpOpen, fault.OpCreate))
			o.pass(10 * time.Second)
			o.disk.SetInject(nil)
		}},
		{"clock", func() {
			step := int64(time.Duration(o.rng.IntN(7200)-3600) * time.Second)
			o.clock.Add(step)
			o.hidden.Add(step)
		}},
		{"change", o.change},
		{"ack", o.ack},
		{"hush", func() { o.still(25*time.Second, func() {}) }},
		{"restart", func() { // a device counts from the beginning
			o.still(2*time.Second, func() { clear(o.feeders[0].next); o.feeders[0].m.epochs++ })
		}},
	}
	next := turns[o.rng.IntN(len(turns))]
	if o.brief { // each once
		next = turns[o.done%len(turns)]
	}
	o.done++
	o.turns[next.name]++
	next.do()
	if o.brief {
		o.pass(3 * time.Second)
	} else {
		o.pass(time.Duration(o.rng.IntN(60)) * time.Second)
	}
}

// pass lets time pass. The log must not fail.
func (o *soak) pass(d time.Duration) {
	time.Sleep(d)
	select {
	case err := <-o.r.Failed():
		panic(fmt.Sprintf("the log has failed: %v\n%s", err, o.said.b))
	default:
	}
}

// still has the devices send nothing for a while, at the end of which f may change them.
func (o *soak) still(d time.Duration, f func()) {
	o.calm(true)
	o.pass(d)
	for _, f := range o.feeders {
		f.mu.Lock()
	}
	f()
	for _, f := range o.feeders {
		f.mu.Unlock()
	}
	o.calm(false)
}

func (o *soak) storm() {
	for _, f := range o.feeders {
		f.mu.Lock()
		f.storm = 10
		f.mu.Unlock()
	}
}

func (o *soak) unplug() {
	var away []*feeder
	for _, f := range o.feeders {
		if o.rng.IntN(3) == 0 {
			f.e.unplug(true)
			away = append(away, f)
		}
	}
	o.tears++
	o.pass(time.Duration(o.rng.IntN(40)) * time.Second)
	for _, f := range away {
		f.e.unplug(false)
	}
}

// change reloads with other settings, without a source and with it again, and with sources that
// come and go.
func (o *soak) change() {
	c := &o.sources[o.rng.IntN(len(o.sources))]
	setOverflow(o.rng, c)
	c.Quarantine = !c.Quarantine
	if c.Frame.Kind == "cobs" || c.Frame.Kind == "slip" {
		c.Frame.Max = maxChanged - 1000 + o.rng.IntN(1000)
	}
	changeOther(o.stage)
	if o.rng.IntN(2) == 0 {
		remove(o.stage)
	}
	o.tears += 2
}

func (o *soak) ack() {
	if _, err := o.r.Ack("it is known"); err != nil {
		o.complain("ack: %v", err)
	}
}

// follow reads every record as it comes, as an event stream does, and begins anew now and then.
func (o *soak) follow() {
	for more := true; more; {
		c := o.r.Archive().Records(archive.Cursor{})
		for n := 0; n < 600 && more; n++ {
			for err := error(nil); err == nil; o.passed.Add(1) {
				_, _, err = c.Look()
			}
			more = o.sleep(time.Second)
		}
		_ = c.Close()
	}
}

// watch looks each second at what the API shows.
func (o *soak) watch() {
	for o.sleep(time.Second) {
		for _, p := range o.r.Sheet().Ports {
			if len(p.Unbalanced) > 0 {
				panic(fmt.Sprintf("%s: %v", p.ID, p.Unbalanced))
			}
		}
		news := o.r.NextSample()
		<-news
		_, _, _ = o.r.Losses("")
		_, _, _ = o.r.Ports(), o.r.Latencies(), o.r.Notified()
		_, _ = o.r.Archive().Page(archive.Query{}, archive.Bounds{Records: 10, Bytes: 1 << 20},
			func(archive.Record) error { return nil })
		o.looks.Add(1)
	}
}

func (o *soak) sleep(d time.Duration) bool {
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-o.quit:
		return false
	case <-late.C:
		return true
	}
}

// levelsAtTheEnd holds the level to be right: not bad once all is known and nothing happens, bad
// when three frames do not come, and not bad once that is known, too.
func (o *soak) levelsAtTheEnd() {
	level := func(what string, lost uint64) {
		v := o.r.Sheet().Verdict
		v.Reasons = slices.DeleteFunc(v.Reasons,
			func(r ledger.Reason) bool { return r.Level != ledger.Bad || r.Source == manyDevices })
		right := len(v.Reasons) == 0
		if lost > 0 {
			right = v.Level == ledger.Bad && len(v.Reasons) == 1 && v.Reasons[0].Source == "x0" &&
				v.Reasons[0].Count == lost
		}
		if !right {
			o.complain("%s: %d frames have not come; the level is %s: %+v", what, lost, v.Level, v.Reasons)
		}
	}
	o.still(2*time.Second, func() {
		for _, f := range o.feeders {
			f.harm, f.tempo.leaves, f.tempo.late = 0, 0, 0
		}
	})
	o.pass(30 * time.Second)
	o.ack()
	o.pass(10 * time.Second)
	level("all is acknowledged", 0)
	o.still(60*time.Second, func() { o.feeders[0].next[1] += 3 })
	o.pass(30 * time.Second)
	level("some were left out", 3)
	o.ack()
	o.pass(10 * time.Second)
	level("that is acknowledged", 0)
}

// judgeSums holds the books of all sources against the sums of what was taken.
func (o *soak) judgeSums() {
	accounts := o.readBooks()
	for _, f := range o.feeders {
		a := accounts[f.id]
		if a == nil {
			o.complain("%s: no sheet has it", f.id)
			continue
		}
		if a.read != f.e.taken || f.e.kind != byLine && a.unread != f.e.thrown {
			o.complain("%s, %s by %s: %d bytes were read, %d thrown away; the books have %d and %d",
				f.id, f.m.kind, f.e.kind, f.e.taken, f.e.thrown, a.read, a.unread)
		}
		if slack := o.tears + f.e.thrown/8; f.m.kind != "raw" && (a.valid > f.valid+slack || a.valid+slack < f.valid) {
			o.complain("%s, %s by %s: %d valid frames were taken, the books have %d", f.id, f.m.kind, f.e.kind, f.valid,
				a.valid)
		}
	}
}
