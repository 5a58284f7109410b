package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/rt"
)

// Options say how much to measure. The zero value is not useful: begin with [Quick] or [Full].
type Options struct {
	Full      bool          // all cells and the sizes of the articles, not a selection
	Budget    time.Duration // time for the turns of one experiment
	MaxRounds int
	// stop when every claim is judged, and every comparison to the base by the deciding figure has
	// an interval narrower than this share
	Tight float64
	CPU   int    // run contestants on this CPU alone; -1: on all
	Dir   string // where files are made that are measured; "": the working directory
	Only  string // contestants whose name has this in it, and the base
}

// Quick takes little more than a minute an experiment.
func Quick() Options {
	return Options{Budget: 65 * time.Second, MaxRounds: 12, Tight: 0.05, CPU: -1}
}

// Full takes what it takes to be sure.
func Full() Options {
	return Options{Full: true, Budget: 10 * time.Minute, MaxRounds: 40, Tight: 0.05, CPU: -1}
}

const (
	shortestTurn = 150 * time.Millisecond
	warmUp       = 100 * time.Millisecond // length of the round that is not counted
	warmLoad     = 50 * time.Millisecond  // of a load that others send, at the beginning of each turn
	countTurn    = 300 * time.Millisecond // length of a turn whose system calls are counted
	lockTick     = 200 * time.Millisecond // between looks at a lock that is taken
	// the rounds a comparison needs may take beyond the budget one part in so many of it
	grace = 2
)

// Bench is where experiments are carried out.
type Bench struct {
	Dir string // of the experiment, removed after it

	ctx      context.Context
	options  Options
	bin      string
	talk     io.Writer
	programs map[Program]built
	lock     *os.File
	chance   uint64
}

// NewBench makes a bench, and keeps other measurements of this machine out until it is closed. What
// goes on is told to talk.
func NewBench(ctx context.Context, o Options, talk io.Writer) (*Bench, error) {
	if err := mayPin(o.CPU); err != nil {
		return nil, err
	}
	lock, err := lockMachine(ctx, talk)
	if err != nil {
		return nil, err
	}
	if err := sweep(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	bin, err := os.MkdirTemp("", binPrefix)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &Bench{ctx: ctx, options: o, bin: bin, talk: talk, programs: map[Program]built{}, lock: lock}, nil
}

// mayPin reports whether contestants may run on a CPU alone; a negative one means all.
func mayPin(cpu int) error {
	if cpu < 0 {
		return nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	undo, err := rt.Pin(rt.CPUs{cpu})
	if err != nil {
		return err
	}
	return undo()
}

// lockMachine takes the lock of all measurements of this machine, or waits for it until the context
// ends.
func lockMachine(ctx context.Context, talk io.Writer) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), "tallywheel-measure.lock"), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(lockTick)
	defer tick.Stop()
	for waits := false; ; waits = true {
		taken, err := sys.Lock(lock)
		if err == nil {
			return lock, nil
		}
		if !taken {
			return nil, errors.Join(err, lock.Close())
		}
		if !waits {
			fmt.Fprintf(talk, "another measurement is under way: waiting for %s\n", lock.Name())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("%s: another measurement was under way: %w", lock.Name(), ctx.Err()),
				lock.Close())
		case <-tick.C:
		}
	}
}

// Close removes what the bench made and lets others measure.
func (b *Bench) Close() error { return errors.Join(os.RemoveAll(b.bin), b.lock.Close()) }

// cellOf is one contestant in one cell, and its rounds.
type cellOf struct {
	c      *Contestant
	cell   Params
	rounds []Metrics
	calls  Metrics
	said   string // by it, of what it found out
	notRun string
	note   string // what a reader should know of it
}

// Run carries out an experiment. When the context ends it stops and returns what it has, with the
// context's error.
func (b *Bench) Run(e *Experiment) (r ExperimentResult, err error) {
	began := time.Now()
	r = e.result(nil)
	if !slices.ContainsFunc(e.Contestants,
		func(c *Contestant) bool { return strings.Contains(c.Name, b.options.Only) }) {
		return r, fmt.Errorf("no contestant has %q in its name", b.options.Only)
	}
	if err := sweepFolders(b.options.Dir); err != nil {
		return r, err
	}
	if b.Dir, err = os.MkdirTemp(b.options.Dir, folderPrefix+e.Name+"-"); err != nil {
		return r, err
	}
	mine, err := holdFolder(b.Dir)
	defer func() { err = errors.Join(err, os.RemoveAll(b.Dir), mine.Close()) }()
	if err != nil {
		return r, err
	}
	if b.Dir, err = filepath.Abs(b.Dir); err != nil {
		return r, err
	}
	if why := e.asksWrongly(); why != "" {
		return r, fmt.Errorf("%s: %s", e.Name, why)
	}
	all := b.cells(e)
	start := time.Now() // what is built once does not count
	if e.Prepare != nil {
		b.tell("%s: preparing", e.Name)
		if err := e.Prepare(b.ctx, b); err != nil {
			return r, fmt.Errorf("%s: %w", e.Name, err)
		}
	}
	noise := b.rounds(e, all, start)
	if e.Calls && b.ctx.Err() == nil {
		b.countCalls(e, all)
	}
	b.tell("")
	r = e.result(all)
	if !e.Once {
		r.Warnings = noise.warnings(r.Rounds, b.options.MaxRounds)
	}
	v := View{&r}
	r.Verdicts = e.judge(v, b.options)
	if e.Advice != nil && len(r.Warnings) == 0 { // else nothing is sure
		r.Advice = e.advise(v)
	}
	r.Seconds = time.Since(began).Seconds()
	return r, b.ctx.Err()
}

// result is what is known after some rounds, but for verdicts and advice.
func (e *Experiment) result(all []*cellOf) ExperimentResult {
	r := ExperimentResult{
		Name: e.Name, Plane: e.Plane.String(), Question: e.Question, Method: e.Method,
		Base: e.Base.name(), Shown: Names(e.Metrics...), Chart: e.Chart,
	}
	for _, c := range all {
		r.Rows = append(r.Rows, c.row())
		r.Rounds = max(r.Rounds, len(c.rounds))
	}
	return r
}

// cells pairs contestants with cells, in the order of a round.
func (b *Bench) cells(e *Experiment) (all []*cellOf) {
	cells := []Params{{}}
	if e.Cells != nil {
		cells = e.Cells(b.options)
	}
	for _, cell := range cells {
		for _, c := range e.Contestants {
			if b.options.Only != "" && !strings.Contains(c.Name, b.options.Only) && c != e.Base {
				continue
			}
			if c.Skip != nil && c.Skip(cell) || !b.options.Full && c.Seldom != nil && c.Seldom(cell) {
				continue
			}
			one := &cellOf{c: c, cell: cell, note: c.Note}
			b.tell("%s: building %s", e.Name, c.Name)
			for _, p := range []Program{c.Program, c.Starts} {
				if p == (Program{}) {
					continue // it starts nothing
				}
				if _, err := b.Program(p); err != nil {
					one.notRun = err.Error()
				}
			}
			all = append(all, one)
		}
	}
	return all
}

// rounds runs a round that is not counted, then as many as the budget, of which some was spent
// since start, allows and the intervals and claims need. Rounds that take the place of those that
// were disturbed may take the grace of the budget, too.
func (b *Bench) rounds(e *Experiment, all []*cellOf, start time.Time) (n noises) {
	began := time.Now()
	budget := b.options.Budget - time.Since(start) - b.countingTakes(e, all)
	for _, c := range all {
		if c.notRun != "" || b.ctx.Err() != nil || e.Once {
			continue
		}
		b.tell("%s: warming up %s %s", e.Name, c.c.Name, c.cell)
		if _, err := (turn{b, c.c, c.cell, warmUp, false}).run(b.ctx, e); err != nil && b.ctx.Err() == nil {
			c.notRun = firstLine(err)
		}
	}
	running := slices.DeleteFunc(slices.Clone(all), func(c *cellOf) bool { return c.notRun != "" })
	if len(running) == 0 || b.ctx.Err() != nil {
		return n
	}
	prepared := time.Since(start)
	overhead := time.Since(began)/time.Duration(len(running)) - warmUp
	length := b.turnLengths(e, overhead, running, budget-time.Since(began))
	var round time.Duration
	for i := range b.options.mostRounds(e) {
		spent := time.Since(began) + round
		if i >= 1 && spent > budget+b.options.Budget/grace ||
			i >= MinRounds && spent > budget && (n.mean().excess() != "" || !b.lacksQuiet(e, all)) {
			break
		}
		// to look more often would find differences where there are none
		if i > 0 && i%MinRounds == 0 && b.tight(e, running) && b.decided(e, all) {
			break
		}
		roundBegan := time.Now()
		b.chance = rand.Uint64()
		for _, c := range shuffled(running) {
			if c.notRun != "" {
				continue
			}
			b.tell("%s: round %d, %s %s", e.Name, i+1, c.c.Name, c.cell)
			o, err := (turn{b, c.c, c.cell, length(c.cell), false}).run(b.ctx, e)
			if b.ctx.Err() != nil {
				return n
			}
			if err != nil {
				c.notRun = firstLine(err)
				if !e.Once {
					c.notRun = fmt.Sprintf("failed in round %d: %s", i+1, c.notRun)
				}
				continue
			}
			c.rounds, c.said = append(c.rounds, o.metrics), o.said
			n.add(o)
		}
		round = time.Since(roundBegan)
		n.needs = prepared + (MinRounds+1)*round + b.countingTakes(e, all)
	}
	return n
}

func (o Options) mostRounds(e *Experiment) int {
	if e.Once {
		return 1
	}
	return o.MaxRounds
}

// shuffled is the turns of a round in an order of chance: the cells, and in each its contestants,
// which stay together, so that little time is between them. The order is what makes a comparison
// fair: whatever the machine does meanwhile, it is chance whom it meets.
func shuffled(turns []*cellOf) []*cellOf {
	var cells [][]*cellOf
	at := map[string]int{}
	for _, t := range turns {
		name := t.cell.String()
		if _, ok := at[name]; !ok {
			at[name] = len(cells)
			cells = append(cells, nil)
		}
		cells[at[name]] = append(cells[at[name]], t)
	}
	rand.Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
	for _, c := range cells {
		rand.Shuffle(len(c), func(i, j int) { c[i], c[j] = c[j], c[i] })
	}
	return slices.Concat(cells...)
}

// turnLengths divides the time for the turns of a round, so that the rounds that a comparison needs
// fit; what is counted once has it for its one. A cell whose turns must be longer takes its time
// first, and the others share what it leaves.
func (b *Bench) turnLengths(e *Experiment, overhead time.Duration, running []*cellOf, left time.Duration,
) func(cell Params) time.Duration {
	share := e.Turn
	if share == 0 {
		share = time.Second
	}
	rounds := MinRounds
	if e.Once {
		rounds = 1
		if b.options.Full { // as long as it asks for: how much it counts is its point
			return func(cell Params) time.Duration { return max(share, e.least(cell)) }
		}
	}
	round := left*9/10/time.Duration(rounds) - time.Duration(len(running))*max(overhead, 0)
	for settled := false; !settled; { // a smaller share makes more cells too long for it, till none is left
		settled = true
		shared, n := round, time.Duration(0)
		for _, c := range running {
			if least := e.least(c.cell); least > share {
				shared -= least
			} else {
				n++
			}
		}
		if n > 0 && share > max(shortestTurn, shared/n) {
			share, settled = max(shortestTurn, shared/n), false
		}
	}
	return func(cell Params) time.Duration { return max(share, e.least(cell)) }
}

// least is how long a turn in a cell is at least.
func (e *Experiment) least(cell Params) time.Duration {
	if e.Least == nil {
		return shortestTurn
	}
	return max(shortestTurn, e.Least(cell))
}

// tight reports whether every comparison to the base is as sure as was asked for, by the deciding
// figure; where there is no base, every figure by itself.
func (b *Bench) tight(e *Experiment, running []*cellOf) bool {
	decides := decisive(Names(e.Metrics...), func(string) bool { return true })
	for _, c := range running {
		own, ok := figureOf(c.rounds, decides)
		if c.notRun != "" || !ok {
			continue // what decides is counted apart
		}
		ones := slices.Repeat([]float64{1}, own.N)
		r, ok := Compare(own.Samples, ones)
		for _, base := range running {
			if base.c == e.Base && base.cell.String() == c.cell.String() && len(base.rounds) > 0 {
				other, _ := figureOf(base.rounds, decides)
				r, ok = Compare(together(own, other))
			}
		}
		if ok && !b.options.sure(r) {
			return false
		}
	}
	return true
}

// decided reports whether more rounds would tell nothing more about a claim: each is judged, or
// lacks something else.
func (b *Bench) decided(e *Experiment, all []*cellOf) bool {
	r := e.result(all)
	return !slices.ContainsFunc(e.judge(View{&r}, b.options),
		func(v Verdict) bool { return v.Reason == TooFewRounds || v.Reason == TooNoisy })
}

// lacksQuiet reports whether a claim could not be judged because rounds were disturbed.
func (b *Bench) lacksQuiet(e *Experiment, all []*cellOf) bool {
	r := e.result(all)
	return slices.ContainsFunc(e.judge(View{&r}, b.options), func(v Verdict) bool { return v.disturbed })
}

// sure reports whether an interval is as narrow as was asked for.
func (o Options) sure(r Ratio) bool { return r.Hi-r.Lo <= o.Tight*r.Median }

// countingTakes is about how long it will take to count system calls.
func (b *Bench) countingTakes(e *Experiment, all []*cellOf) (t time.Duration) {
	for _, c := range all {
		if e.Calls && c.notRun == "" && c.c.canBeCounted() {
			t += 2 * countTurn // its start and end, too
		}
	}
	return t
}

// countCalls gives every contestant a turn in which its system calls are counted.
func (b *Bench) countCalls(e *Experiment, all []*cellOf) {
	for _, c := range all {
		if c.notRun != "" || !c.c.canBeCounted() || b.ctx.Err() != nil {
			continue
		}
		b.tell("%s: counting the system calls of %s %s", e.Name, c.c.Name, c.cell)
		if o, err := (turn{b, c.c, c.cell, countTurn, true}).run(b.ctx, e); err == nil {
			c.calls = Metrics{}
			if o.note != "" {
				c.note = strings.TrimPrefix(c.note+"; "+o.note, "; ")
			}
			for name, v := range o.metrics {
				if strings.HasPrefix(name, callMetric) || strings.HasPrefix(name, callsPer) {
					c.calls[name] = v
				}
			}
		} else if b.ctx.Err() == nil {
			fmt.Fprintf(b.talk, "%s: %s: system calls not counted: %s\n", e.Name, c.c.Name, firstLine(err))
		}
	}
}

// row summarises the rounds of a cell. ops served to work out others.
func (c *cellOf) row() Row {
	r := Row{Contestant: c.c.Name, Params: c.cell, Note: c.note, Said: c.said, NotRun: c.notRun}
	if len(c.rounds) == 0 {
		if r.NotRun == "" {
			r.NotRun = "stopped before its first round"
		}
		return r
	}
	r.Metrics = map[string]Figure{}
	for _, m := range c.rounds {
		for name := range m {
			if _, answers := m[Answer.name]; answers && name != Answer.name {
				continue // how long it took to find out is of no interest
			}
			if _, done := r.Metrics[name]; !done && name != "ops" {
				r.Metrics[name], _ = figureOf(c.rounds, name) // this round has it
			}
		}
	}
	r.total()
	for name, v := range c.calls {
		r.Metrics[name] = Summarise(Describe(name).Unit, []float64{v})
	}
	return r
}

// total adds what went wrong in all rounds, and the share and the bound that follow.
func (row *Row) total() {
	set := func(name string, total float64) {
		if f, ok := row.Metrics[name]; ok {
			f.Total = &total
			row.Metrics[name] = f
		}
	}
	for _, m := range failures {
		if m != LostPercent && m != ErrorBound {
			set(m.name, sum(row.Metrics[m.name].Samples))
		}
	}
	if sent := sum(row.Metrics[SentFrames.name].Samples); row.Metrics[SentFrames.name].N > 0 {
		lost := sum(row.Metrics[LostFrames.name].Samples)
		set(LostPercent.name, 100*lost/max(1, sent))
		row.Metrics[ErrorBound.name] = Summarise("", []float64{errorBound(lost, max(1, sent))})
	}
}

// Names are those of metrics, as results have them.
func Names(metrics ...Metric) (all []string) {
	for _, m := range metrics {
		all = append(all, m.name)
	}
	return all
}

// noises gathers what disturbed the turns.
type noises struct {
	disturbance
	turns float64
	needs time.Duration // about how long the rounds that a verdict needs take
}

func (n *noises) add(o outcome) {
	n.turns++
	n.others += o.others
	n.steal += o.steal
	n.stopped += float64(o.stopped)
}

func (n *noises) warnings(rounds, most int) (w []string) {
	if rounds > 0 && rounds < MinRounds {
		text := fmt.Sprintf("only %s: too few to tell contestants apart", Count(rounds, "round"))
		if most >= MinRounds {
			text += fmt.Sprintf("; --budget %v has time for %d", n.needs.Round(5*time.Second)+5*time.Second, MinRounds)
		}
		w = append(w, text)
	}
	if excess := n.mean().excess(); excess != "" {
		w = append(w, excess)
	}
	return w
}

// mean is what disturbed a turn on average; of the times that a limit struck it is all.
func (n *noises) mean() disturbance {
	d := n.disturbance
	d.others /= max(1, n.turns)
	d.steal /= max(1, n.turns)
	return d
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// tell shows what goes on, on one line that is written over on a terminal; "" ends it.
func (b *Bench) tell(format string, args ...any) {
	f, ok := b.talk.(*os.File)
	if !ok {
		return
	}
	if _, err := sys.GetTermios(int(f.Fd())); err != nil {
		return
	}
	text := []rune(fmt.Sprintf(format, args...))
	fmt.Fprintf(f, "\r\x1b[K%s", string(text[:min(len(text), 100)]))
}

// Full reports whether this is a full run.
func (b *Bench) Full() bool { return b.options.Full }

// Chance is the seed of what strikes at random in a turn. All turns of a round have the same one,
// so that it strikes all contestants alike.
func (b *Bench) Chance() uint64 { return b.chance }
