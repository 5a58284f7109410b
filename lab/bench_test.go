package lab_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/cell"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/contestant"
	_ "github.com/tallywheel/tallywheel/lab/experiments"
	"github.com/tallywheel/tallywheel/lab/experiments/noise"
	"github.com/tallywheel/tallywheel/probe"
)

// TestMain is the tests, or a contestant of theirs or of an experiment.
func TestMain(m *testing.M) {
	cell.Main()
	if os.Getenv(lab.OwnVariable) == "" {
		os.Exit(m.Run())
	}
	args := os.Args[3:] // behind "lab contestant"
	err := errors.New("no name")
	if len(args) > 1 {
		if work, ok := works(args[1]); ok {
			err = contest(work, args[2:])
		} else {
			err = lab.Contest(args, os.Stdin, os.Stdout)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func contest(work contestant.Work, args []string) error {
	t, err := contestant.New(append([]string{"test"}, args...), os.Stdin, os.Stdout)
	if err != nil {
		return err
	}
	return work(t)
}

// our is a contestant of the tests.
func our(name string) *lab.Contestant {
	work, _ := works(name)
	return lab.Ours(name, work)
}

// works is what the contestants of the tests do; some of them do not keep to the protocol.
func works(name string) (contestant.Work, bool) {
	if how, ok := liars[name]; ok {
		return lies(how), true
	}
	work, ok := map[string]contestant.Work{
		"a": noise.Work(0), "b": noise.Work(0), "b/c": noise.Work(0), "works": noise.Work(0), "first": noise.Work(0),
		"second": noise.Work(0), "crc16": noise.Work(0),
		"refuses": func(*contestant.Turn) error { return errors.New("no such device here\nand more about it") },
		"fails":   after(func() error { return errors.New("lost its disk") }),
		"silent":  after(func() error { return nil }),
		"babbles": after(func() error {
			_, err := fmt.Println("BenchmarkBabble -1 12 ns/op\nBenchmarkBabble many ns/op x")
			return err
		}),
		"counts": opens,
		"knows":  func(t *contestant.Turn) error { return t.Answer(false, "two lines\nin one") },
		"sleeps": sleeps, "starts": starts,
		"compiles": func(*contestant.Turn) error {
			return lab.Compiles(context.Background(), os.Getenv("TALLYWHEEL_TEST_PID"))
		},
		"parent": func(t *contestant.Turn) error {
			child := exec.Command("sh", "-c", "while :; do :; done")
			child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			runtime.LockOSThread() // it dies with the thread that started it
			if err := child.Start(); err != nil {
				return err
			}
			defer func() {
				_ = child.Process.Kill()
				_ = child.Wait()
			}()
			return sleeps(t)
		},
	}[name]
	return work, ok
}

// after does something once the turn has begun.
func after(do func() error) contestant.Work {
	return func(t *contestant.Turn) error {
		if _, err := t.Ready(); err != nil {
			return err
		}
		return do()
	}
}

// opens opens a file again and again, which are known system calls.
func opens(t *contestant.Turn) error {
	until, err := t.Ready()
	if err != nil {
		return err
	}
	n := uint64(0)
	for ; time.Now().Before(until); n++ {
		f, err := os.Open("/dev/null")
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	took, err := t.Done()
	return errors.Join(err, t.Result(took, n))
}

// sleeps uses next to no CPU time.
func sleeps(t *contestant.Turn) error {
	until, err := t.Ready()
	if err != nil {
		return err
	}
	time.Sleep(time.Until(until))
	took, err := t.Done()
	return errors.Join(err, t.Result(took, 1))
}

// quickly is options for tests: they are about what is said, not about how fast anything is.
func quickly(t *testing.T) lab.Options {
	o := lab.Quick()
	o.Budget, o.MaxRounds, o.Dir = 2*time.Second, 5, t.TempDir()
	return o
}

// TestOneAtATime: a second measurement waits for the first, and can be stopped while it does.
func TestOneAtATime(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	first, err := lab.NewBench(t.Context(), quickly(t), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	said := &testenv.Buffer{}
	refused := make(chan error, 1)
	o := quickly(t)
	go func() {
		_, err := lab.NewBench(ctx, o, said)
		refused <- err
	}()
	testenv.Until(t, time.Minute, "the second says that it waits",
		func() bool { return strings.Contains(said.String(), "waiting for") })
	stop()
	if err := <-refused; !errors.Is(err, context.Canceled) {
		t.Errorf("the second: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := lab.NewBench(t.Context(), quickly(t), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

// TestSweep: what a bench left that was killed goes when the next one begins, and nothing else.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	for _, path := range []string{"tallywheel-lab-1/go-build2", "tallywheel-run-3"} {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	b, err := lab.NewBench(t.Context(), quickly(t), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "tallywheel-*"))
	if err != nil || len(left) != 2 || filepath.Base(left[1]) != "tallywheel-run-3" { // and the lock
		t.Errorf("left: %v %v", left, err)
	}
}

// TestSweepOfFolders: the folder of an experiment whose bench was killed goes when the next one
// begins; one that is held, and what only has a like name, stay.
func TestSweepOfFolders(t *testing.T) {
	o := quickly(t)
	o.Dir = filepath.Join(t.TempDir(), "a[b]*")
	name := lab.Experiments()[0].Name
	left, held := "tallywheel-"+name+"-17", "tallywheel-"+name+"-18"
	others := []string{held, "tallywheel-" + name + "-mine", "tallywheel-mine-17", name + "-17"}
	for _, folder := range append([]string{left}, others...) {
		if err := os.MkdirAll(filepath.Join(o.Dir, folder, "below"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(filepath.Join(o.Dir, held))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := sys.Lock(f); err != nil {
		t.Fatal(err)
	}
	works := our("works")
	e := &lab.Experiment{
		Name: "test", Metrics: []lab.Metric{lab.NsPerOp}, Base: works, Turn: time.Millisecond,
		Contestants: []*lab.Contestant{works},
	}
	if _, err := run(t, t.Context(), o, e); err != nil {
		t.Fatal(err)
	}
	there, err := os.ReadDir(o.Dir)
	if err != nil || len(there) != len(others) {
		t.Errorf("left are %v, %v; want %v", there, err, others)
	}
	for _, folder := range others {
		if _, err := os.Stat(filepath.Join(o.Dir, folder, "below")); err != nil {
			t.Error(err)
		}
	}
}

func run(t *testing.T, ctx context.Context, o lab.Options, e *lab.Experiment) (lab.ExperimentResult, error) {
	t.Helper()
	if *runs == 0 {
		// a lock of its own: these tests look at what is said, not at how fast anything is
		t.Setenv("TMPDIR", t.TempDir())
	}
	b, err := lab.NewBench(ctx, o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	return b.Run(e)
}

func TestRoundsAndCosts(t *testing.T) {
	works, sleeps, counts := our("works"), our("sleeps"), our("counts")
	e := &lab.Experiment{
		Name: "test", Metrics: []lab.Metric{lab.NsPerOp}, Base: works, Calls: true, Turn: 200 * time.Millisecond,
		Contestants: []*lab.Contestant{works, sleeps, counts},
	}
	r, err := run(t, t.Context(), quickly(t), e)
	if err != nil {
		t.Fatal(err)
	}
	v := lab.View{ExperimentResult: &r}
	for _, c := range e.Contestants {
		if f, ok := v.Figure(c, nil, lab.NsPerOp); !ok || f.N < 1 || f.N != r.Rounds || f.Median <= 0 ||
			len(f.Samples) != f.N {
			t.Errorf("%s: %+v of %d rounds", c.Name, f, r.Rounds)
		}
	}
	busy, ok1 := v.Median(works, nil, lab.CPUPercent)
	idle, ok2 := v.Median(sleeps, nil, lab.CPUPercent)
	if !ok1 || !ok2 || idle > 20 || busy < 2*idle {
		t.Errorf("CPU: %.1f %% at work, %.1f %% asleep", busy, idle)
	}
	user, ok1 := v.Median(works, nil, lab.CPUUserPerOp)
	system, ok2 := v.Median(counts, nil, lab.CPUSystemPerOp)
	if whole, _ := v.Median(works, nil, lab.CPUPerOp); !ok1 || !ok2 || user < whole/2 || user > whole || system <= 0 {
		t.Errorf("%.3f of %.3f µs in the program that only calculates, %.3f µs in the kernel for the one that opens files", user, whole, system)
	}
	for _, name := range []lab.Metric{lab.Wall, lab.Others, lab.Steal, lab.Throttled} {
		if f, ok := v.Figure(works, nil, name); !ok || f.Lo < 0 {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if calls, ok := v.Median(counts, nil, lab.Calls("openat")); !ok || math.Abs(calls-1) > 0.1 {
		t.Errorf("%.2f opens an operation, want 1 (%v)", calls, ok)
	}
	result, inKernel := probe.CountCalls(os.Getpid())
	if inKernel == nil {
		_, _ = result()
	}
	if row := v.Row(counts, nil); strings.Contains(row.Note, "ptrace") != (inKernel != nil) {
		t.Errorf("the note on how calls were counted is %q; in the kernel: %v", row.Note, inKernel)
	}
	if n, ok := v.Median(works, nil, lab.Threads); !ok || n < 1 || n > 100 {
		t.Errorf("%.0f threads", n)
	}
}

// TestMemoryOfATurn: what a contestant has in memory is looked at while it runs, which is over
// sometimes where the machine is busy.
func TestMemoryOfATurn(t *testing.T) {
	works := our("works")
	e := &lab.Experiment{
		Name: "test", Metrics: []lab.Metric{lab.NsPerOp}, Base: works, Turn: 200 * time.Millisecond,
		Contestants: []*lab.Contestant{works},
	}
	testenv.Calm(t, func() error {
		r, err := run(t, t.Context(), quickly(t), e)
		if err != nil {
			t.Fatal(err)
		}
		v := lab.View{ExperimentResult: &r}
		if rss, ok := v.Median(works, nil, lab.RSS); !ok || rss < 1<<20 || rss > 1<<30 {
			return fmt.Errorf("memory %.0f bytes", rss)
		}
		return nil
	})
}

// TestChildrenCount: what a contestant's children use is its own.
func TestChildrenCount(t *testing.T) {
	if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid())); err != nil {
		t.Skipf("SKIPPED: the kernel does not tell children: %v; run this on one with CONFIG_PROC_CHILDREN", err)
	}
	e := &lab.Experiment{
		Name: "test", Metrics: []lab.Metric{lab.CPUPerOp},
		Contestants: []*lab.Contestant{our("parent")}, Turn: 300 * time.Millisecond,
	}
	r, err := run(t, t.Context(), quickly(t), e)
	if err != nil {
		t.Fatal(err)
	}
	// It sleeps, which takes it some 100 µs, and its child works all the time.
	if cpu, ok := (lab.View{ExperimentResult: &r}).Median(e.Contestants[0], nil, lab.CPUPerOp); !ok || cpu < 2000 {
		t.Errorf("%.0f µs of CPU time in a turn in which a child worked all the time", cpu)
	}
}

// TestCountingEnds: a program of several threads that ends while one of them is stopped to be
// counted does not keep the laboratory waiting.
func TestCountingEnds(t *testing.T) {
	var cells []any
	for i := range 12 {
		cells = append(cells, i)
	}
	o := quickly(t)
	o.MaxRounds = 1
	r, err := run(t, t.Context(), o, &lab.Experiment{
		Name: "pool", Metrics: []lab.Metric{lab.NsPerOp}, Calls: true,
		Cells:       func(lab.Options) []lab.Params { return lab.Cells("again", cells...) },
		Contestants: experiment(t, "pool").Contestants[1:2],
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Rows {
		if row.Metrics["syscalls_per_op"].N != 1 {
			t.Errorf("%s: not counted: %+v", row.Params, row)
		}
	}
}

func TestWhatIsNotRunSaysWhy(t *testing.T) {
	works := our("works")
	e := &lab.Experiment{
		Name: "test", Metrics: []lab.Metric{lab.NsPerOp}, Base: works,
		Advice: func(lab.View) string { return "take what works" },
		Contestants: []*lab.Contestant{
			works, our("refuses"), our("fails"), our("silent"), our("babbles"),
			lab.Ours("stranger", noise.Work(0)),
			lab.Tool("no-such-program", "apt install it").As("tool"),
			lab.C("epoll_reader.c", "apt install liblacking-dev", "-llacking").As("c"),
			lab.Python("serial_reader.py", "no_such_module", "pip install it").As("python"),
		},
	}
	r, err := run(t, t.Context(), quickly(t), e)
	if err != nil {
		t.Fatal(err)
	}
	if r.Advice != "" || !strings.Contains(strings.Join(r.Warnings, "; "), "too few to tell") {
		t.Errorf("of %d rounds the advice is %q, with the warnings %q", r.Rounds, r.Advice, r.Warnings)
	}
	want := map[string]string{
		"refuses": "no such device here", "fails": "lost its disk", "silent": "no line of results",
		"babbles": "is no number of operations", "stranger": `no contestant "stranger" of experiment "test"`,
		"tool": "no no-such-program (apt install it)", "c": "(apt install liblacking-dev)",
		"python": "no python3 with the module no_such_module (pip install it)",
	}
	for _, row := range r.Rows {
		if row.Contestant == "works" {
			if row.NotRun != "" || row.Metrics == nil {
				t.Errorf("what works was not run: %s", row.NotRun)
			}
			continue
		}
		if row.Metrics != nil || !strings.Contains(row.NotRun, want[row.Contestant]) ||
			strings.Contains(row.NotRun, "\n") {
			t.Errorf("%s: figures %v, not run: %q, want %q", row.Contestant, row.Metrics, row.NotRun,
				want[row.Contestant])
		}
	}
}

// TestStopped: a run that is stopped keeps what it has, and says of the rest that it was stopped.
func TestStopped(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	turns := 0
	first, second := our("first"), our("second")
	e := &lab.Experiment{
		Name: "test", Metrics: []lab.Metric{lab.NsPerOp},
		Contestants: []*lab.Contestant{first, second},
		Scene: func(*lab.Bench, *lab.Contestant, lab.Params) (*lab.Scene, error) {
			if turns++; turns == 4 { // two to warm up, the first of the first round, and no further
				stop()
			}
			return &lab.Scene{}, nil
		},
		Claims: []lab.Claim{{Claim: "the second is faster", Needs: "both", Judge: func(v lab.View) (lab.Verdict, bool) {
			_, ok := v.Medians(nil, lab.NsPerOp, first, second)
			return lab.Holds(true, "", ""), ok
		}}},
	}
	r, err := run(t, ctx, quickly(t), e)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("stopped with %v", err)
	}
	if len(r.Rows) != 2 {
		t.Fatalf("rows: %+v", r.Rows)
	}
	done, not := r.Rows[0], r.Rows[1]
	if done.Metrics == nil { // who is first is chance
		done, not = not, done
	}
	if done.Metrics == nil || not.Metrics != nil || not.NotRun != "stopped before its first round" {
		t.Errorf("rows: %+v", r.Rows)
	}
	if len(r.Verdicts) != 1 || r.Verdicts[0].Verdict != lab.NotMeasurable || r.Verdicts[0].Why != "not measured: both" {
		t.Errorf("verdicts: %+v", r.Verdicts)
	}
}

// TestOrderIsShuffled: in every round all contestants have a turn, those of a cell one after the
// other, and who begins is chance: that all of ten rounds begin alike comes once in 4⁹.
func TestOrderIsShuffled(t *testing.T) {
	var turns []string
	e := &lab.Experiment{
		Name: "test", Metrics: []lab.Metric{lab.NsPerOp},
		Cells:       func(lab.Options) []lab.Params { return lab.Cells("cell", "x", "y") },
		Contestants: []*lab.Contestant{our("a"), our("b")}, Turn: time.Millisecond,
		Scene: func(_ *lab.Bench, c *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
			turns = append(turns, cell["cell"]+c.Name)
			return &lab.Scene{}, nil
		},
	}
	const rounds, round = 10, 4
	o := quickly(t)
	o.Budget, o.MaxRounds, o.Tight = time.Hour, rounds, 0
	if _, err := run(t, t.Context(), o, e); err != nil {
		t.Fatal(err)
	}
	if len(turns) != (rounds+1)*round { // one to warm up
		t.Fatalf("%d turns, want %d rounds of %d", len(turns), rounds+1, round)
	}
	first := map[string]bool{}
	for r := round; r < len(turns); r += round {
		one := turns[r : r+round]
		first[one[0]] = true
		if one[0][0] != one[1][0] || one[2][0] != one[3][0] {
			t.Errorf("the turns of a cell are not together: %v", one)
		}
		for i, turn := range one {
			if slices.Contains(one[:i], turn) {
				t.Errorf("%s has two turns in a round: %v", turn, one)
			}
		}
	}
	if len(first) == 1 {
		t.Errorf("every round begins with %v", first)
	}
}

// TestRoundsUntilJudged: rounds go on until the claims are judged, by the figures that they ask
// for, and not only until that by which contestants are compared is known well enough.
func TestRoundsUntilJudged(t *testing.T) {
	const rounds = 2*lab.MinRounds + 1
	for _, c := range []struct{ latency, want int }{{100, rounds}, {1, lab.MinRounds}} {
		a, turns := our("a"), 0
		e := &lab.Experiment{
			Name: "test", Metrics: []lab.Metric{lab.NsPerOp}, Contestants: []*lab.Contestant{a}, Turn: time.Millisecond,
			Derive: func(_ lab.Params, _ time.Duration, m lab.Metrics) {
				clear(m) // of this machine
				m[lab.NsPerOp.String()], m[lab.LatencyP99.String()] = 1, 1
				if turns++; turns%2 == 0 {
					m[lab.LatencyP99.String()] = float64(c.latency)
				}
			},
			Claims: []lab.Claim{{Needs: "a", Source: lab.Goal("≤ 10 µs"), Judge: func(v lab.View) (lab.Verdict, bool) {
				return v.AtMost(a, nil, lab.LatencyP99, 10, "")
			}}},
		}
		o := quickly(t)
		o.Budget, o.MaxRounds = time.Hour, rounds
		r, err := run(t, t.Context(), o, e)
		if err != nil || r.Rounds != c.want {
			t.Errorf("%d rounds, %v; want %d: %+v", r.Rounds, err, c.want, r.Verdicts)
		}
	}
}

// TestAnswers: what a contestant was asked and found out stands in the results, in words, after one
// round and without figures of time.
func TestAnswers(t *testing.T) {
	knows := our("knows")
	e := &lab.Experiment{
		Name: "test", Metrics: []lab.Metric{lab.Answer}, Once: true,
		Contestants: []*lab.Contestant{knows, our("refuses")},
		Claims:      []lab.Claim{lab.FilesArticle.Claims(7, "1", "It is so.", "so").Refuted(knows, "never")},
	}
	r, err := run(t, t.Context(), quickly(t), e)
	if err != nil {
		t.Fatal(err)
	}
	row := r.Rows[0]
	if row.Said != "two lines in one" || len(row.Metrics) != 1 || row.Metrics["answer"].N != 1 || len(r.Warnings) > 0 {
		t.Errorf("the row is %+v, the warnings are %q", row, r.Warnings)
	}
	if v := r.Verdicts[0]; v.Verdict != lab.Impossible || v.Here != "two lines in one" || v.Source.ID != "001-07" {
		t.Errorf("the verdict is %+v", v)
	}
}
