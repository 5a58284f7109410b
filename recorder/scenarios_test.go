package recorder

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/fault"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/reader"
	"github.com/tallywheel/tallywheel/seglog"
)

var (
	scenarioCount = flag.Int("scenarios", testenv.Rounds(100, 15), "scenarios that TestScenarios plays")
	scenarioSeed  = flag.Uint64("seed", 1, "seed of the first one")
	scenarioTorn  = flag.Bool("torn", false,
		"tear the newest sheet at some kills; a start whose only sheet that is leaves no account")
	scenarioPeers = flag.Bool("peers", false,
		"the first source listens, and all that do read every connection; else half of them do")
	scenarioOnly = flag.String("situations", "", "names, with commas: only these of those that the seed has")
)

// TestScenarios plays strangers against the recorder in fake time: devices that send, stop, and
// come again, while the disk, the process and the configuration change under them. Behind every
// interface is a fake that keeps its own truth; the law that holds the books against it is in
// simlaw_test.go.
//
// A scenario follows from its seed but for the order in which goroutines run, so one that failed
// may have to be played a few times.
func TestScenarios(t *testing.T) {
	var dues, moments uint64
	kills, early, spilled, refused, made := 0, 0, 0, 0, 0
	for n := range *scenarioCount {
		seed := *scenarioSeed + uint64(n)
		if n%500 == 499 {
			t.Logf("%d scenarios", n+1)
		}
		s := play(t, seed, strings.FieldsFunc(*scenarioOnly, func(r rune) bool { return r == ',' }))
		dues, moments = dues+s.dues, moments+s.moments
		kills, early = kills+len(s.kills), early+s.early
		spilled += s.over.written
		refused, made = refused+s.refused, made+s.madeRoom
		if len(s.complaints) == 0 {
			continue
		}
		t.Errorf("seed %d: %s\n\t%s\nagain: go test ./recorder -run TestScenarios -scenarios 1 -seed %d%s",
			seed, strings.Join(s.did, ", "), strings.Join(s.complaints, "\n\t"), seed, smaller(t, seed))
	}
	t.Logf("%d frames did not come when they were due; at %d moments a source was rightly silent, or not; %d processes were killed, %d of them before they recorded; %d bytes ran over into files; %d connections were refused; %d peers made room while it was looked at them",
		dues, moments, kills, early, spilled, refused, made)
}

// smaller looks for a situation that fails alone, and returns the flags that play it.
func smaller(t *testing.T, seed uint64) (flags string) {
	if *scenarioPeers {
		flags = " -peers"
	}
	for _, s := range situations {
		if p := play(t, seed, []string{s.name}); len(p.complaints) > 0 && len(p.did) > 0 {
			return flags + " -situations " + s.name
		}
	}
	return flags
}

// stage is one scenario.
type stage struct {
	t      *testing.T
	rng    *rand.Rand
	fate   *rand.Rand // of processes that begin
	seed   uint64
	k      *kernel
	disk   *fault.Dir
	bad    *diskTrouble
	over   badFiles   // what frames run over into
	dir    string     // of the sheets
	saving sync.Mutex // held while a sheet is written, and while a process dies; guards disk, bad and dir
	dirs   int
	log    config.Log
	read   string // strategy
	quiet  *testenv.Buffer
	tell   []string // command that is told of troubles

	feeders []*feeder
	sources []config.Source
	others  []config.Source
	r       *Recorder
	life    *life        // of that process
	began   time.Time    // of the scenario
	clock   atomic.Int64 // ns by which the machine's clock was set
	hidden  atomic.Int64 // ns of the fake time that are none to the machine
	rest    []func()     // what dead processes have left

	troubled, calmed time.Time // the last trouble of the log
	upsets           [][2]time.Time
	halls            []*hall
	dues, moments    uint64 // frames that were due and did not come; moments at which a silence was looked for
	kills            []killed
	saved            [2]time.Time // when the last sheet but one, and the last one, had their name; saving guards it
	starts           int
	early            int    // processes that were killed before Start returned
	failures         int    // of the log
	refused          int    // connections
	madeRoom         int    // peers, while it was looked at who is there
	harmed           uint64 // records that were taken out of the log
	complaints       []string
	did              []string
}

// killed is the end of a process that could not write its books.
type killed struct {
	life     int
	at, from time.Time // what was read before from must be in the log
	torn     bool      // the newest sheet is, and the one before it serves, …
	saved    time.Time // … which is of this time: what any process has read since may be in no sheet
	all      bool      // what earlier processes have stored is not safe either
}

func (s *stage) complain(format string, args ...any) {
	if len(s.complaints) < 12 {
		s.complaints = append(s.complaints, fmt.Sprintf(format, args...))
	}
}

// play plays one scenario, or only some of its situations.
func play(t *testing.T, seed uint64, only []string) *stage {
	tmp, err := os.MkdirTemp("", "tallywheel-scenario-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	s := &stage{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 14)), fate: rand.New(rand.NewPCG(seed, 16)),
		dir: filepath.Join(tmp, "0"),
		bad: &diskTrouble{}, quiet: &testenv.Buffer{},
	}
	defer func() {
		openFiles, openReader, openSource, uptime, writeSheet = logFiles, reader.New, newOpener, realUptime,
			realWriteSheet
		openSpill = newSpillFile
		if p := recover(); p != nil {
			t.Fatalf("seed %d: %s: %v\n%s", seed, strings.Join(s.did, ", "), p, s.quiet.String())
		}
	}()
	synctest.Test(t, func(*testing.T) { s.play(only) })
	if testing.Verbose() && len(s.complaints) > 0 {
		t.Logf("seed %d said:\n%s", seed, s.quiet.String())
	}
	return s
}

var realUptime, realWriteSheet = uptime, writeSheet

func (s *stage) play(only []string) {
	s.began = time.Now()
	s.prepare()
	s.start()
	for _, f := range s.feeders {
		f.begin()
	}
	for range 1 + s.rng.IntN(5) {
		for left := time.Duration(50+s.rng.IntN(1500)) * time.Millisecond; left > 0; left -= lookAtRoom {
			s.wait(min(left, lookAtRoom))
			s.whoMadeRoom()
		}
		next := situations[s.rng.IntN(len(situations))]
		seed := s.rng.Uint64()
		if len(only) > 0 && !contains(only, next.name) {
			continue
		}
		s.did = append(s.did, next.name)
		before := s.rng
		s.rng = rand.New(rand.NewPCG(seed, 15))
		from := time.Now()
		if next.act(s); contains([]string{"kill", "power", "harm"}, next.name) {
			from = from.Add(-1300 * time.Millisecond) // what was counted since the last sheet
		}
		if !contains(gentle, next.name) {
			s.upset(from, time.Now())
		}
		if s.rng.IntN(3) > 0 {
			s.goesOn(next.name)
		}
		s.rng = before
	}
	s.goesOn("the end")
	for _, f := range s.feeders {
		f.end()
	}
	s.wait(20 * time.Millisecond)
	s.stop("end")
	for _, f := range s.rest {
		f()
	}
	s.judge()
}

func contains(all []string, one string) bool {
	for _, s := range all {
		if s == one {
			return true
		}
	}
	return false
}

// prepare chooses what the scenario is about.
func (s *stage) prepare() {
	s.k = newKernel()
	s.k.life = &life{}
	s.disk = fault.New()
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		panic(err)
	}
	s.log = config.Log{
		Dir: s.dir, Segment: 1 << 20, Sync: pick(s.rng, "batch", "batch", "always", "interval", "never"),
		Delay:    pick(s.rng, time.Millisecond, 50*time.Millisecond),
		Interval: pick(s.rng, 100*time.Millisecond, time.Second),
	}
	s.read = pick(s.rng, "ring", "ring", config.Pipeline)
	framings := []string{"tally128", "cobs", "slip", "line", "ubx", "length", "modbus", "raw"}
	for n := range 1 + s.rng.IntN(2) {
		kind := framings[s.rng.IntN(len(framings))]
		if n == 0 && s.rng.IntN(3) == 0 {
			kind = "tally128"
		}
		id := fmt.Sprintf("x%d", n)
		rng := rand.New(rand.NewPCG(s.seed, uint64(100+n)))
		f := &feeder{
			id: id, source: id, rng: rng, devices: 1, next: map[uint32]uint64{},
			m:     maker{kind: kind, rng: rng, size: pick(rng, 10, 60, 250)},
			tempo: newTempo(rand.New(rand.NewPCG(s.seed, uint64(200+n))), kind),
			burst: pick(rng, 3, 20, 60), pause: pick[time.Duration](rng, 5, 20, 60) * time.Millisecond,
			harm: pick(rng, 0, 0, 3, 20),
		}
		by, limit := pick(rng, carriages...), pick(rng, 4<<10, 64<<10, 200<<10)
		if *scenarioPeers && n == 0 {
			by = byListener
		}
		f.e = s.k.newEndpoint(by, limit, held[kind])
		// a connection that waits is taken at once; what waited is in no rhythm
		if f.e.kind != byListener && f.tempo.interval == 0 {
			f.e.opens = pick(rand.New(rand.NewPCG(s.seed, uint64(300+n))), 0, 0, 30*time.Millisecond,
				300*time.Millisecond)
		}
		if kind == "tally128" {
			f.devices = pick(rng, 1, 1, 3, 100, 2000)
			f.next[1] = pick[uint64](rng, 0, 0, 1<<32-100, 1<<63-50, 1<<64-200)
			if lags := rand.New(rand.NewPCG(s.seed, uint64(400+n))); f.tempo.interval == 0 && f.harm <= 3 &&
				lags.IntN(2) == 0 {
				f.lag = &lag{rng: lags}
			}
		}
		if rng.IntN(8) == 0 {
			f.burst, f.pause = 400, 20*time.Millisecond
		}
		if f.tempo.interval > 0 {
			f.burst = 1
			if kind == "length" || kind == "ubx" { // whose damage may hold back what follows
				f.harm = 0
			}
		}
		c := s.source(f)
		if c.Spill != nil && f.tempo.interval == 0 { // else little runs over
			f.m.size, f.burst, f.pause = 250, 400, 20*time.Millisecond
		}
		calls := rand.New(rand.NewPCG(s.seed, uint64(500+n)))
		if f.e.kind == byListener && (calls.IntN(2) == 0 || *scenarioPeers) {
			s.feeders = append(s.feeders, s.openHall(f, &c, calls)...)
		} else {
			s.feeders = append(s.feeders, f)
		}
		s.sources = append(s.sources, c)
	}
	uptime = func() (time.Duration, error) { return time.Since(s.began) - time.Duration(s.hidden.Load()), nil }
	writeSheet, openSpill = s.writeSheet, s.over.create
	s.over.mend()
}

// outside is what a process that begins finds.
func (s *stage) outside() (life *life) {
	life = s.k.running()
	openFiles = func(config.Log, *asyncfile.ChainStats, *slog.Logger) (seglog.FS, error) {
		return simDisk{s.disk, s.bad}, nil
	}
	openReader = func(reader.Config) (reader.Reader, error) {
		return &simReader{
			k: s.k, life: life, rng: rand.New(rand.NewPCG(s.seed, uint64(s.starts))),
			most: pick(s.rng, 7, 300, 4096, 16384),
			wall: s.wall, live: map[*simHandle]bool{},
		}, nil
	}
	openSource = func(c config.Source) opener {
		for _, f := range s.feeders {
			if f.source == c.ID {
				return f.e.listensAt().opener(life)
			}
		}
		return (&endpoint{k: s.k, kind: byLine, away: true}).opener(life)
	}
	return life
}

// held is what a framing may hold back behind a length that is false, in bytes: for length as much
// as a change may set for max, and the prefix.
var held = map[string]uint64{"length": maxChanged + 2, "ubx": 8 << 10, "modbus": 256}

// maxChanged is more than any max of a framing that a change sets, in bytes.
const maxChanged = 3000

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// wall is the clock of the machine.
func (s *stage) wall() time.Time { return time.Now().Add(time.Duration(s.clock.Load())) }

func (s *stage) source(f *feeder) config.Source {
	c := config.Source{
		ID: f.id, Frame: f.m.settings(), Quarantine: f.rng.IntN(3) == 0,
	}
	setOverflow(f.rng, &c)
	f.tempo.configure(&c)
	switch f.e.kind {
	case byLine:
		c.Serial = &config.Serial{Port: "/" + f.id}
	case byListener:
		c.TCP = &config.Net{Listen: f.id + ":1", Peers: pick(f.rng, "first", "newest")}
	case byDial:
		c.TCP = &config.Net{Dial: f.id + ":1"}
	default:
		c.UDP = &config.Net{Listen: f.id + ":1"}
	}
	return c
}

// setOverflow chooses a policy, and a buffer for it.
func setOverflow(rng *rand.Rand, c *config.Source) {
	c.Overflow, c.Spill = pick(rng, "block", "block", "drop-oldest", "drop-newest", "spill", "spill"), nil
	if setBuffer(rng, c); c.Overflow == "spill" {
		c.Spill = &config.Spill{Max: pick[config.Size](rng, 4<<20, 16<<20)}
	}
}

func setBuffer(rng *rand.Rand, c *config.Source) {
	if c.Buffer = pick[config.Size](rng, 64<<10, 256<<10); c.Overflow == "spill" {
		c.Buffer = pick[config.Size](rng, 256<<10, 1<<20)
	}
}

func (s *stage) config() config.Config {
	c := config.Config{Log: s.log, API: config.API{Listen: "off"}, Read: config.Read{Strategy: s.read}}
	c.Log.Dir, c.Notify.Command = s.dir, s.tell
	c.Sources = append(append(c.Sources, s.sources...), s.others...)
	return c
}

func (s *stage) failing() bool { return s.troubled.After(s.calmed) }

// within has something end in time.
func (s *stage) within(d time.Duration, what string, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
		panic(fmt.Sprintf("seed %d hangs: %s has not ended after %v; %v\n%s", s.seed, what, d, s.did, s.quiet.String()))
	}
}

// stopsWithin is how long a stop may take, also on a slow log.
func stopsWithin() time.Duration { return time.Minute + 2*stopPatience }

func (s *stage) stop(why string) (last ledger.Sheet) {
	s.within(stopsWithin(), "the stop", func() {
		var err error
		if last, err = s.r.Stop(why); err != nil {
			fmt.Fprintln(s.quiet, "stop:", err)
		}
	})
	if f := s.r.log.Position().Err; f != nil && !errors.Is(f, seglog.ErrClosed) {
		s.failures++
	}
	return last
}

// wait lets time pass; a recorder whose log has failed is started again.
func (s *stage) wait(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(min(20*time.Millisecond, time.Until(end)))
		s.supervise()
	}
}

func (s *stage) supervise() {
	select {
	case err := <-s.r.Failed():
		fmt.Fprintln(s.quiet, "supervisor:", err)
		from := time.Now()
		s.stop("failed")
		s.start()
		s.upset(from, time.Now())
	default:
	}
}

// goesOn is the law of life: what comes while nothing is wrong is stored within two seconds, or the
// patience of a hall.
func (s *stage) goesOn(after string) {
	s.mend()
	s.calm(true)
	defer s.calm(false)
	from := time.Now()
	patience := 2 * time.Second
	for _, h := range s.halls {
		patience = max(patience, h.patience())
	}
	s.wait(patience)
	s.supervise()
	for _, f := range s.feeders {
		if n := f.e.waiting(from); n > 0 {
			s.complain("%s: after %s %d bytes wait to be read for %v", f.id, after, n, patience)
		}
	}
	s.levelWhileFine(after)
	s.levelOfSilences()
	for _, p := range s.r.Sheet().Ports {
		if p.Frames.InFlight > 0 {
			s.complain("%s: after %s %d frames are in flight for 2 s", p.ID, after, p.Frames.InFlight)
		}
		if len(p.Unbalanced) > 0 {
			s.complain("%s: after %s: %v", p.ID, after, p.Unbalanced)
		}
	}
}

// hurt notes that the log is in trouble, mend ends that. The file that frames run over into may be
// in trouble, too.
func (s *stage) hurt() {
	for _, c := range s.sources {
		for _, f := range s.feeders {
			if f.source == c.ID && c.Spill != nil { // else little runs over
				f.mu.Lock()
				f.more = max(0, len(f.frames)-muchSent) + 5000
				f.mu.Unlock()
			}
		}
	}
	s.over.tell(func(f *badFiles) {
		switch s.rng.IntN(8) {
		case 0:
			f.write = pick[error](s.rng, syscall.EIO, syscall.ENOSPC)
		case 1:
			f.free = s.rng.Int64N(20 << 20)
		case 2:
			f.delay = time.Duration(s.rng.IntN(300)) * time.Millisecond
		case 3:
			f.open = syscall.EMFILE
		case 4:
			f.damage = true
		}
	})
	if !s.failing() {
		s.troubled = time.Now()
	}
}

func (s *stage) mend() {
	s.disk.SetInject(nil)
	s.disk.SetFree(-1)
	s.bad.slow(0)
	s.over.mend()
	if s.failing() {
		s.calmed = time.Now()
		s.upset(s.troubled, s.calmed.Add(2*time.Second))
	}
}
