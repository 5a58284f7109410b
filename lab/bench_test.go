package lab_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
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

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/perf/benchfmt"

	"github.com/tallywheel/tallywheel/cell"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/contestant"
	_ "github.com/tallywheel/tallywheel/lab/experiments"
	"github.com/tallywheel/tallywheel/lab/experiments/noise"
	"github.com/tallywheel/tallywheel/probe"
)

var runs = flag.Int("runs", 0,
	"how often TestCopies compares copies of a contestant on this machine; nothing else should run meanwhile")

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
		"slower":  noise.Work(10),
		"refuses": func(*contestant.Turn) error { return errors.New("no such device here\nand more about it") },
		"fails":   after(func() error { return errors.New("lost its disk") }),
		"silent":  after(func() error { return nil }),
		"babbles": after(func() error {
			_, err := fmt.Println("BenchmarkBabble -1 12 ns/op\nBenchmarkBabble many ns/op x")
			return err
		}),
		"counts": opens,
		"knows":  func(t *contestant.Turn) error { return t.Answer(false, "two lines\nin one") },
		"sleeps": sleeps,
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

// TestResults: what is written as JSON fits the schema and is read again unchanged, and Go's own
// reader of benchmarks takes the text.
func TestResults(t *testing.T) {
	a := our("a")
	e := &lab.Experiment{
		Name: "test-results", Plane: lab.Memory, Question: "?", Method: ".", Metrics: []lab.Metric{lab.NsPerOp},
		Base:        a,
		Cells:       func(lab.Options) []lab.Params { return []lab.Params{{"depth": "8", "how": "with care"}} },
		Contestants: []*lab.Contestant{a, our("b/c"), our("refuses")},
		Claims: []lab.Claim{{
			Claim: "a holds", Source: lab.NetworkArticle.Says("1", "1"),
			Judge: func(lab.View) (lab.Verdict, bool) {
				return lab.CannotBe("0", "because"), true
			},
		}},
	}
	result, err := run(t, t.Context(), quickly(t), e)
	if err != nil {
		t.Fatal(err)
	}
	r := &lab.Results{
		Schema: lab.Schema, Started: time.Now().UTC(), Machine: lab.ThisMachine(""),
		Experiments: []lab.ExperimentResult{result},
	}
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	valid(t, b.Bytes())
	path := t.TempDir() + "/results.json"
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := lab.ReadJSON(path)
	if err != nil {
		t.Fatal(err)
	}
	var b2 bytes.Buffer
	if err := again.WriteJSON(&b2); err != nil || b2.String() != b.String() {
		t.Errorf("read and written again it differs: %v", err)
	}
	if !strings.Contains(b.String(), `"depth": 8`) {
		t.Error("a number among the parameters is not a number")
	}

	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	lines, contestants := 0, map[string]bool{}
	for rd := benchfmt.NewReader(&text, "results.txt"); rd.Scan(); {
		switch rec := rd.Result().(type) {
		case *benchfmt.Result:
			lines++
			contestants[rec.GetConfig("contestant")] = true
			if v, ok := rec.Value("ns_per_op"); !ok || v <= 0 ||
				rec.Name.String() != "TestResults/depth=8/how=with_care" {
				t.Errorf("line %s: %v", rec.Name, rec.Values)
			}
		case *benchfmt.SyntaxError:
			t.Error(rec)
		}
	}
	if lines != 2*result.Rounds || !contestants["b/c"] {
		t.Errorf("%d lines of %v, %d rounds", lines, contestants, result.Rounds)
	}
}

// valid holds results against schema.json.
func valid(t *testing.T, results []byte) {
	t.Helper()
	c := jsonschema.NewCompiler()
	schema, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(results, &v); err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(v); err != nil {
		t.Error(err)
	}
}

// TestSchemaRefuses: the schema can fail.
func TestSchemaRefuses(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		`{}`,
		`{"schema":1,"started":"x","command":"","machine":{},"experiments":[{"name":"x","rows":[{"contestant":"a","params":{}}],"verdicts":[]}]}`,
		`{"schema":1,"started":"2026-11-20T00:00:00Z","command":"","machine":{"os":"linux","arch":"amd64","kernel":"","cpu":"","cpus":2,"memory_bytes":1,"go":""},"experiments":[{"name":"x","plane":"p","question":"?","method":"","shown":[],"chart":{},"rounds":1,"seconds":1,"rows":[],"verdicts":[{"claim":"","seed":"","here":"","why":"","verdict":"perhaps"}]}]}`,
	} {
		var v any
		if err := json.Unmarshal([]byte(bad), &v); err != nil {
			t.Fatal(err)
		}
		if schema.Validate(v) == nil {
			t.Errorf("the schema takes %s", bad)
		}
	}
}

func TestReadJSONRefusesOthers(t *testing.T) {
	path := t.TempDir() + "/results.json"
	for text, want := range map[string]string{"{": "unexpected EOF", `{"schema":99}`: "schema 99"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := lab.ReadJSON(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestReferences: the results that are kept can be read, are whole, and fit the schema.
func TestReferences(t *testing.T) {
	files, err := filepath.Glob("results/*.json.gz")
	if err != nil || len(files) == 0 {
		t.Fatalf("no reference is kept: %v", err)
	}
	for _, path := range files {
		r, err := lab.ReadJSON(path)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := r.WriteJSON(&b); err != nil {
			t.Fatal(err)
		}
		valid(t, b.Bytes())
		if r.Partial || r.Machine.Kernel == "" || r.Machine.CPU == "" || r.Started.IsZero() {
			t.Errorf("%s: partial %v, of %+v", path, r.Partial, r.Machine)
		}
		for _, e := range r.Experiments {
			if len(e.Rows) == 0 || len(e.Verdicts) == 0 || e.Failed != "" {
				t.Errorf("%s: %s has no rows or no verdicts: %s", path, e.Name, e.Failed)
			}
			for _, row := range e.Rows {
				if (row.Metrics == nil) == (row.NotRun == "") {
					t.Errorf("%s: %s, %s: figures and a reason for none, or neither", path, e.Name, row.Contestant)
				}
			}
		}
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

// TestExperiments: each folder has registered its experiment, and its claims are its own: each is a
// sentence that stands alone, has a source, and is judged once, not without figures.
func TestExperiments(t *testing.T) {
	folders, err := filepath.Glob("experiments/*/experiment.go")
	if err != nil || len(folders) != len(lab.Experiments()) {
		t.Errorf("%d folders, %d experiments registered: %v", len(folders), len(lab.Experiments()), err)
	}
	judged := map[any]string{}
	empty := lab.View{ExperimentResult: &lab.ExperimentResult{}}
	for _, e := range lab.Experiments() {
		if !slices.Contains(folders, "experiments/"+e.Name+"/experiment.go") {
			t.Errorf("%s has no folder of its name", e.Name)
		}
		if text := e.Advice(empty); text != "" {
			t.Errorf("%s advises without figures: %s", e.Name, text)
		}
		for _, c := range e.Claims {
			if first, _, _ := strings.Cut(c.Claim, " "); slices.Contains([]string{"…", "It", "They", "Against", ""},
				first) || !strings.HasSuffix(c.Claim, ".") {
				t.Errorf("%s: %q is no sentence that stands alone", e.Name, c.Claim)
			}
			if c.Source == (lab.Source{}) || c.Source.Number != "" && c.Source.Chapter == "" {
				t.Errorf("%s: nobody knows where %q is from", e.Name, c.Claim)
			}
			for _, once := range []any{c.Claim, c.Source} {
				if other, ok := judged[once]; ok && (c.Source.Number != "" || once == c.Claim) {
					t.Errorf("%s and %s judge the same: %v", other, e.Name, once)
				}
				judged[once] = e.Name
			}
			if v, ok := c.Judge(empty); ok && v.Verdict != lab.NotMeasurable {
				t.Errorf("%s judges %q without figures: %s", e.Name, c.Claim, v.Verdict)
			} else if !ok && c.Needs == "" {
				t.Errorf("%s does not say what %q needs", e.Name, c.Claim)
			}
		}
	}
}

// TestEveryClaimIsJudged: each claim of the list has one judge; of the documents that the list has,
// nothing else is judged; and no two have one number.
func TestEveryClaimIsJudged(t *testing.T) {
	judges, numbers, documents := map[lab.Source]int{}, map[string]bool{}, map[string]bool{}
	for _, e := range lab.Experiments() {
		for _, c := range e.Claims {
			judges[c.Source]++
		}
	}
	for _, p := range claims.All() {
		if n := judges[p.Source]; n != 1 {
			t.Errorf("claim %s has %d judges: %s", p.Source.ID, n, p.Text)
		}
		if numbers[p.Source.ID] {
			t.Errorf("two claims are %s", p.Source.ID)
		}
		numbers[p.Source.ID], documents[p.Source.Number] = true, true
	}
	for s := range judges {
		if documents[s.Number] && !numbers[s.ID] {
			t.Errorf("a claim of %s is judged that is not in the list: package claims", s)
		}
	}
}

// TestClaimsAskForWhatIsMeasured: where everything was measured every claim is judged and advice is
// given, so none asks for a contestant or a cell that there is not.
func TestClaimsAskForWhatIsMeasured(t *testing.T) {
	for _, e := range lab.Experiments() {
		if why := e.AsksWrongly(); why != "" {
			t.Errorf("%s: %s", e.Name, why)
		}
	}
}

// TestMisspeltDoesNotStart: an experiment whose claim or advice asks for a contestant or a setting
// that it has not is an error before anything is measured. It would read "not measurable here" for
// ever.
func TestMisspeltDoesNotStart(t *testing.T) {
	crc := our("crc16")
	for what, spoil := range map[string]func(e *lab.Experiment){
		`the claim "c." asks`: func(e *lab.Experiment) {
			e.Claims[0].Judge = func(v lab.View) (lab.Verdict, bool) {
				_, ok := v.Median(our("crc61"), nil, lab.NsPerOp)
				return lab.Verdict{}, ok
			}
		},
		`the claim "c." asks for`: func(e *lab.Experiment) {
			e.Claims[0].Judge = func(v lab.View) (lab.Verdict, bool) {
				_, ok := v.Median(crc, lab.Params{"bites": "1"}, lab.NsPerOp)
				return lab.Verdict{}, ok
			}
		},
		"its advice asks": func(e *lab.Experiment) { e.Advice = func(lab.View) string { return "" } },
	} {
		e := &lab.Experiment{
			Name: "test", Metrics: []lab.Metric{lab.NsPerOp}, Contestants: []*lab.Contestant{crc},
			Advice: func(lab.View) string { return "take it" },
			Claims: []lab.Claim{{Claim: "c.", Judge: func(v lab.View) (lab.Verdict, bool) {
				_, ok := v.Median(crc, nil, lab.NsPerOp)
				return lab.Verdict{}, ok
			}}},
		}
		spoil(e)
		if r, err := run(t, t.Context(), quickly(t), e); err == nil || !strings.Contains(err.Error(), what) ||
			len(r.Rows) > 0 {
			t.Errorf("it starts: %v, want %q", err, what)
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

// TestContestantsAreThere: what our contestants are called with, and the sources of the others,
// exist.
func TestContestantsAreThere(t *testing.T) {
	for _, e := range lab.Experiments() {
		for _, c := range e.Contestants {
			if err := c.Program.Exists(); err != nil {
				t.Errorf("%s, %s: %v", e.Name, c.Name, err)
			}
			if (c.Program == lab.Own()) != (c.Work != nil) {
				t.Errorf("%s, %s: a contestant of ours does something, others are programs", e.Name, c.Name)
			}
		}
	}
	for _, p := range []lab.Program{
		lab.C("crc61.c", ""), lab.Rust("serail.rs"), lab.Python("reader.py", "serial", ""),
		lab.Peers("crc61"),
	} {
		if p.Exists() == nil {
			t.Errorf("%v exists", p)
		}
	}
}

// TestRegisterRefuses: an experiment that cannot be what was meant ends the program at its start.
func TestRegisterRefuses(t *testing.T) {
	whole := lab.Experiment{
		Name: "new", Plane: lab.Files, Question: "?", Method: ".", Metrics: []lab.Metric{lab.NsPerOp},
		Contestants: []*lab.Contestant{our("a")},
		Claims:      make([]lab.Claim, 1), Advice: func(lab.View) string { return "" },
	}
	for want, spoil := range map[string]func(e *lab.Experiment){
		`"crc" is there already`:        func(e *lab.Experiment) { e.Name = "crc" },
		"is of no plane":                func(e *lab.Experiment) { e.Plane = lab.Plane{} },
		"is not whole":                  func(e *lab.Experiment) { e.Claims = nil },
		"compares to b, which does not": func(e *lab.Experiment) { e.Base = our("b") },
		"has two contestants a": func(e *lab.Experiment) {
			e.Contestants = append(e.Contestants, e.Contestants...)
		},
	} {
		e := whole
		spoil(&e)
		func() {
			defer func() {
				if said := fmt.Sprint(recover()); !strings.Contains(said, want) {
					t.Errorf("%q, want %q", said, want)
				}
			}()
			lab.Register(&e)
		}()
	}
}

// TestCopies is for a quiet machine: go test ./lab -run Copies -runs 20. Two copies of a contestant
// differ in no more than one run of twenty, and one that is 10 % slower is found in all.
func TestCopies(t *testing.T) {
	if *runs == 0 {
		t.Skip("SKIPPED: this measures, so it wants a machine for itself; run go test ./lab -run Copies -runs 20")
	}
	alike, found := 0, 0
	for i := range *runs {
		o := lab.Quick()
		o.Dir = t.TempDir()
		r, err := run(t, t.Context(), o, &lab.Experiment{
			Name: "test", Metrics: []lab.Metric{lab.NsPerOp}, Turn: 300 * time.Millisecond,
			Contestants: []*lab.Contestant{our("a"), our("b"), our("slower")},
		})
		if err != nil {
			t.Fatal(err)
		}
		v := lab.View{ExperimentResult: &r}
		same, _ := v.Ratio(our("b"), our("a"), nil, lab.NsPerOp)
		slow, _ := v.Ratio(our("slower"), our("a"), nil, lab.NsPerOp)
		t.Logf("run %2d: %d rounds, copies %v differ %v; slower %v differ %v", i+1, r.Rounds, same, same.Differ(), slow,
			slow.Differ())
		if same.Differ() {
			alike++
		}
		if slow.Differ() && slow.Median > 1 {
			found++
		}
	}
	if 20*alike > *runs || found < *runs {
		t.Errorf("of %d runs copies differed in %d, 10 %% was found in %d", *runs, alike, found)
	}
}
