package lab_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
)

// rounds are the figures of a contestant in a cell, by metric, round by round.
type rounds map[lab.Metric][]float64

func rowOf(contestant string, cell lab.Params, of rounds) lab.Row {
	r := lab.Row{Contestant: contestant, Params: cell, Metrics: map[string]lab.Figure{}}
	for m, v := range of {
		r.Metrics[m.String()] = lab.Summarise(lab.Describe(m.String()).Unit, v)
	}
	return r
}

// around are eight rounds that vary by some 2 %.
func around(x float64) []float64 {
	return []float64{x, 1.01 * x, 0.99 * x, x, 1.01 * x, 0.99 * x, x, x}
}

// apart are eight rounds that vary by a factor of two.
func apart(x float64) []float64 {
	return []float64{x, 1.4 * x, 0.7 * x, x, 1.3 * x, 0.8 * x, 0.7 * x, 1.4 * x}
}

func always(x float64) []float64 { return []float64{x, x, x, x, x, x, x, x} }

func wantVerdict(t *testing.T, claim, want, why string, rows ...lab.Row) {
	t.Helper()
	for _, e := range lab.Experiments() {
		for _, c := range e.Claims {
			if c.Claim != claim {
				continue
			}
			v, ok := c.Judge(lab.View{ExperimentResult: &lab.ExperimentResult{Rows: rows}})
			if !ok || v.Verdict != want {
				t.Errorf("%s: %+v (%v), want %s: %s", claim, v, ok, want, why)
			}
			return
		}
	}
	t.Errorf("nobody judges %q", claim)
}

// TestJudgesOfFiles: what varies is judged by its interval.
func TestJudgesOfFiles(t *testing.T) {
	gc := func(scanner, reader []float64) []lab.Row {
		return []lab.Row{
			rowOf("Scanner", lab.Params{}, rounds{lab.GCCycles: scanner}),
			rowOf("read 64 KiB", lab.Params{}, rounds{lab.GCCycles: reader}),
		}
	}
	scanner := claims.ScannerGC.Text
	wantVerdict(t, scanner, lab.Reproduced, "none against many", gc(around(40), always(0))...)
	wantVerdict(t, scanner, lab.NotReproduced, "as many", gc(around(40), around(40))...)
	wantVerdict(t, scanner, lab.NotMeasurable, "about a ninth", gc(around(18), apart(2))...)

	sizes := func(who string, cell lab.Params, metric lab.Metric, at map[string]float64) (rows []lab.Row) {
		for bytes, x := range at {
			of := lab.Params{"bytes": bytes}
			maps.Copy(of, cell)
			rows = append(rows, rowOf(who, of, rounds{metric: around(x)}))
		}
		return rows
	}
	for want, largest := range map[string]float64{lab.Reproduced: 90, lab.NotReproduced: 130} {
		at := map[string]float64{"1024": 60, "8192": 100, "65536": 95, "262144": largest}
		wantVerdict(t, claims.GoldenBuffer.Text, want, "the largest size counts, too",
			sizes("kept", nil, lab.MBPerSecond, at)...)
	}
	for want, large := range map[string]float64{lab.Reproduced: 30, lab.NotReproduced: 95} {
		at := map[string]float64{"128": 100, "4096": 30, "8192": 30, "65536": large}
		wantVerdict(t, claims.BufferCPU.Text, want, "by the sizes of the claim",
			sizes("net.UDPConn", lab.Params{"input": "udp"}, lab.CPUPerOp, at)...)
	}

	mapped := func(cell lab.Params, metric lab.Metric, plain, advised float64) []lab.Row {
		return []lab.Row{
			rowOf("seek+read", cell, rounds{metric: around(100)}),
			rowOf("mmap/plain", cell, rounds{metric: around(plain), lab.AllFaultsPerOp: around(plain / 100)}),
			rowOf("mmap", cell, rounds{metric: around(advised), lab.AllFaultsPerOp: around(advised / 100)}),
		}
	}
	cached, cold := lab.Params{"state": "cached"}, lab.Params{"state": "cold"}
	wantVerdict(t, claims.MapThroughput.Text, lab.Reproduced, "the article's map has no advice",
		mapped(cached, lab.OpsPerSecond, 140, 90)...)
	wantVerdict(t, claims.MapP99.Text, lab.NotReproduced, "the article's map has no advice",
		mapped(cold, lab.LatencyP99, 100, 50)...)
	wantVerdict(t, claims.MapFaults.Text, lab.Reproduced, "one a read", mapped(cold, lab.LatencyP99, 99, 50)...)
	wantVerdict(t, claims.MapFaults.Text, lab.NotReproduced, "half of that", mapped(cold, lab.LatencyP99, 50, 99)...)
}

// TestJudgesOfTheLog: the chain that lingers, as the article has it, is the one that is judged: it
// must be fast, and by being a chain.
func TestJudgesOfTheLog(t *testing.T) {
	log := func(chain, linger, linked float64) (rows []lab.Row) {
		cell := lab.Params{"producers": "64"}
		for name, x := range map[string]float64{
			"tallywheel/seglog linked linger": chain, "tallywheel/seglog linger": linger,
			"tallywheel/seglog linked": linked, "tallywheel/seglog": 50_000,
		} {
			rows = append(rows, rowOf(name, cell, rounds{lab.OpsPerSecond: around(x)}))
		}
		return rows
	}
	wantVerdict(t, claims.LinkedLog.Text, lab.Reproduced, "fast, and faster", log(40_000, 30_000, 1)...)
	wantVerdict(t, claims.LinkedLog.Text, lab.NotReproduced, "no faster", log(40_000, 40_000, 1e6)...)
	wantVerdict(t, claims.LinkedLog.Text, lab.NotReproduced, "not fast", log(5_000, 3_000, 1e6)...)
}

// TestJudgesOfProcesses: what was refused, failed or leaked is looked at in each round, and few
// rounds decide nothing; what varies is judged by its interval.
func TestJudgesOfProcesses(t *testing.T) {
	once, each := []float64{0, 0, 0, 1, 0, 0, 0, 0}, []float64{5, 1, 5, 1, 1, 2, 1, 1}
	pool := func(small, large []float64) []lab.Row {
		bursts := lab.Params{"load": "bursts"}
		return []lab.Row{
			rowOf("8 workers, queue 1024", bursts,
				rounds{lab.RefusedPerSecond: small, lab.LatencyP50: around(1)}),
			rowOf("32 workers, 200 connections", bursts,
				rounds{lab.RefusedPerSecond: large, lab.LatencyP50: around(1)}),
		}
	}
	refusals := claims.PoolRefusals.Text
	wantVerdict(t, refusals, lab.Reproduced, "one refuses, one does not", pool(around(400), always(0))...)
	wantVerdict(t, refusals, lab.NotReproduced, "nobody refuses", pool(always(0), always(0))...)
	wantVerdict(t, refusals, lab.NotReproduced, "both refuse", pool(around(400), each)...)
	wantVerdict(t, refusals, lab.NotMeasurable, "one round", pool(around(400), once)...)

	restart := func(who string, failed []float64) (rows []lab.Row) {
		for _, cell := range []lab.Params{
			{"event": "restart", "connections": "new"}, {"event": "restart", "connections": "kept"},
		} {
			rows = append(rows, rowOf(who, cell, rounds{lab.FailedPerEvent: failed}))
		}
		return rows
	}
	for want, failed := range map[string][]float64{
		lab.Reproduced: always(0), lab.NotMeasurable: once, lab.NotReproduced: each,
	} {
		wantVerdict(t, claims.ReusePort.Text, want, "requests lost", restart("net/http, own sockets", failed)...)
		wantVerdict(t, "A rolling restart by prefork costs no request.", want, "requests lost",
			restart("tallywheel/prefork", failed)...)
	}

	drift := func(m lab.Metric, v []float64) (rows []lab.Row) {
		for _, who := range []string{
			"net/http", "tallywheel/auto", "tallywheel/uring-inline", "tallywheel/epoll-goroutine",
		} {
			for _, cell := range lab.Cells("load", "kept", "new") {
				rows = append(rows, rowOf(who, cell, rounds{m: v}))
			}
		}
		return rows
	}
	for _, c := range []struct {
		claim  string
		metric lab.Metric
		rounds []float64
		want   string
	}{
		{claims.NoLockWait.Text, lab.LockWait, always(0), lab.Reproduced},
		{claims.NoLockWait.Text, lab.LockWait, apart(0.95), lab.NotMeasurable},
		{claims.NoLockWait.Text, lab.LockWait, apart(3), lab.NotReproduced},
		{claims.SteadyAllocation.Text, lab.AllocationVariation, apart(24), lab.NotMeasurable},
		{
			claims.NoDescriptorLeak.Text, lab.DescriptorLeak,
			[]float64{-0.03, 0, 0.02, 0.09, -0.1, 0, 0, 0},
			lab.Reproduced,
		},
		{claims.NoDescriptorLeak.Text, lab.DescriptorLeak, []float64{0, 0, 0, 40, 0, 0, 0, 0}, lab.NotMeasurable},
		{claims.NoDescriptorLeak.Text, lab.DescriptorLeak, around(0.2), lab.NotReproduced},
		{claims.NoGoroutineLeft.Text, lab.GoroutineLeak, always(0), lab.Reproduced},
		{claims.NoGoroutineLeft.Text, lab.GoroutineLeak, apart(0.12), lab.NotMeasurable},
		{claims.NoGoroutineLeft.Text, lab.GoroutineLeak, apart(0.5), lab.NotReproduced},
	} {
		wantVerdict(t, c.claim, c.want, c.metric.String(), drift(c.metric, c.rounds)...)
	}
	for verdict, rounds := range map[string][]float64{
		lab.NotMeasurable: always(0), lab.NotReproduced: around(40), // what leaks, leaks without the others
	} {
		wantVerdict(t, claims.NoDescriptorLeak.Text, verdict, "a server was not measured",
			drift(lab.DescriptorLeak, rounds)[1:]...)
	}
}

// TestProcessesHaveTheSameCPUs: several processes are held against one that may use as many CPUs.
func TestProcessesHaveTheSameCPUs(t *testing.T) {
	for _, work := range []string{"cpu", "mutex"} {
		cell := lab.Params{"work": work, "connections": "100"}
		of := func(who string, x float64) lab.Row { return rowOf(who, cell, rounds{lab.OpsPerSecond: around(x)}) }
		claim := map[string]string{"cpu": claims.GainOfProcesses.Text, "mutex": claims.HotLock.Text}[work]
		whole, two := of("1 process, all CPUs", 100), of("2 processes, GOMAXPROCS=1", 25) // of 8
		wantVerdict(t, claim, lab.Reproduced, "more", whole, two, of("2 processes, all CPUs", 150))
		wantVerdict(t, claim, lab.NotReproduced, "no more", whole, two, of("2 processes, all CPUs", 100))
	}
}

// TestAsManyProcessesAsCPUs: the claim that n processes do most falls with any other count that
// does more.
func TestAsManyProcessesAsCPUs(t *testing.T) {
	counts := []string{"n ÷ 2 workers", "2n workers", "4n workers"}
	of := func(who string, x float64) lab.Row {
		return rowOf(who, lab.Params{"work": "cpu"}, rounds{lab.OpsPerSecond: around(x)})
	}
	rows := []lab.Row{of("n workers", 100)}
	for _, who := range counts {
		rows = append(rows, of(who, 80))
	}
	claim := claims.CPUBoundCount.Text
	wantVerdict(t, claim, lab.Reproduced, "n do most", rows...)
	for i, who := range counts {
		better := slices.Clone(rows)
		better[i+1] = of(who, 120)
		wantVerdict(t, claim, lab.NotReproduced, who, better...)
	}
}

// TestJudgesOfLocks: who waits for locks about as much as is let pass decides nothing.
func TestJudgesOfLocks(t *testing.T) {
	for want, waits := range map[string][]float64{
		lab.Reproduced: around(0.2), lab.NotMeasurable: apart(1), lab.NotReproduced: around(8),
	} {
		wantVerdict(t, claims.ChannelsNoLocks.Text, want, "channel",
			rowOf("a channel", lab.Params{}, rounds{lab.LockWait: waits}))
		wantVerdict(t, claims.SyncMapLocks.Text, want, "map",
			rowOf("sync.Map: Store", lab.Params{}, rounds{lab.LockWait: waits}),
			rowOf("sync.Map: Load", lab.Params{}, rounds{lab.LockWait: always(0)}))
	}
	wantVerdict(t, claims.BufioLocks.Text, lab.NotReproduced, "no lock",
		rowOf("bufio.Writers, one each", lab.Params{}, rounds{lab.LockWait: always(0)}))
	wantVerdict(t, claims.CompletionTimes.Text, lab.NotMeasurable, "whose load?",
		rowOf("receives: most within 8 µs", lab.Params{}, rounds{lab.Answer: {1}}))
}

// TestAdviceSaysOnlyWhatIsSure: of contestants that are alike, and of rounds in which others had
// the machine, advice says that no difference was seen, or is sure, and nothing else.
func TestAdviceSaysOnlyWhatIsSure(t *testing.T) {
	comparing := "file-buffer file-lines file-misuse file-mmap-seek file-open file-random file-tlb uring-nop " +
		"log-durable log-throughput memory-return process-affinity process-drift process-ipc process-pool " +
		"process-scale process-steal locks http-bodies http-connect http-files http-idle http-json http-plaintext " +
		"http-tail http-wrk rt-cyclic rt-event rt-memory rt-preempt rt-start rt-stw rt-suite rt-switch rt-wcet serial-buffer " +
		"serial-mmap serial-ports serial-strategies file-sequential ring-copy"
	for name := range strings.FieldsSeq(comparing) {
		for _, e := range lab.Experiments() {
			if e.Name != name {
				continue
			}
			for want, others := range map[string]float64{"no difference above": 0, "no difference that is sure": 40} {
				step := 0.0 // between one row and the next
				if others > 0 {
					step = 1
				}
				got := e.Advice(lab.View{ExperimentResult: &lab.ExperimentResult{Rows: allRows(e, step, others)}})
				if !strings.Contains(got, want) {
					t.Errorf("%s, others %v %%: %q, want %q", name, others, got, want)
				}
				for _, word := range sureWords {
					if strings.Contains(got, word) {
						t.Errorf("%s, others %v %%: %q is sure of %q", name, others, got, word)
					}
				}
			}
		}
	}
}

// TestAdviceFollowsWhatWasFound: advice that cites counts says what they say, whatever that is.
func TestAdviceFollowsWhatWasFound(t *testing.T) {
	for _, e := range lab.Experiments() {
		rows := allRows(e, 0, 0)
		for i := range rows { // all answers are yes, all programs are as large
			rows[i].Metrics[lab.Answer.String()] = lab.Summarise("", []float64{1})
		}
		got := e.Advice(lab.View{ExperimentResult: &lab.ExperimentResult{Rows: rows}})
		switch e.Name {
		case "kernel-facts":
			if !strings.Contains(got, ", 0 are not there.") {
				t.Errorf("%s, where all is there: %q", e.Name, got)
			}
		case "binary-size":
			if !strings.HasPrefix(got, "-s -w takes nothing off") {
				t.Errorf("%s, where nothing is smaller: %q", e.Name, got)
			}
		}
	}
}

var sureWords = []string{"quicker", "slower", "more:", " pays", "take the", "submit in", "enough"}

// allRows are rows of all contestants of an experiment in all its cells, with the same figures for
// all metrics but for a step from one row to the next.
func allRows(e *lab.Experiment, step, others float64) (rows []lab.Row) {
	cells := []lab.Params{{}}
	if e.Cells != nil {
		cells = e.Cells(lab.Quick())
	}
	x := 10.0
	for _, cell := range cells {
		for _, c := range e.Contestants {
			if c.Skip != nil && c.Skip(cell) {
				continue
			}
			of := rounds{}
			for _, m := range append(lab.AllMetrics(), e.Metrics...) {
				of[m] = around(x)
			}
			of[lab.Steal], of[lab.Throttled], of[lab.Others] = always(0), always(0), always(others)
			rows = append(rows, rowOf(c.Name, cell, of))
			x += step
		}
	}
	return rows
}

// TestReasonsFitTheOutcome: where the figures are what nobody expected, the reason for the other
// outcome is not given as theirs.
func TestReasonsFitTheOutcome(t *testing.T) {
	steady := lab.Params{"load": "steady"}
	small, large, larger := "8 workers, queue 1024", "32 to 64 workers, queue 8192", "32 workers, 200 connections"
	udp := func(bytes string, lost float64) lab.Row {
		return rowOf("net.UDPConn", lab.Params{"input": "udp", "bytes": bytes}, rounds{lab.LostPercent: around(lost)})
	}
	for _, c := range []struct {
		claim string
		rows  []lab.Row
	}{
		{claims.PoolTime.Text, []lab.Row{
			rowOf(small, steady, rounds{lab.LatencyP50: around(100)}),
			rowOf(larger, steady, rounds{lab.LatencyP50: around(33)}),
		}},
		{claims.PoolConnections.Text, []lab.Row{
			rowOf(large, steady, rounds{lab.OpsPerSecond: around(100)}),
			rowOf(larger, steady, rounds{lab.OpsPerSecond: around(300)}),
		}},
		{claims.BufferLoss.Text, []lab.Row{udp("8192", 0.1), udp("65536", 3)}},
		{claims.StaticSize.Text, []lab.Row{
			rowOf("static", nil, rounds{lab.BinaryBytes: always(6)}),
			rowOf("cgo", nil, rounds{lab.BinaryBytes: always(10)}),
		}},
	} {
		for _, e := range lab.Experiments() {
			for _, judged := range e.Claims {
				if judged.Claim != c.claim {
					continue
				}
				v, ok := judged.Judge(lab.View{ExperimentResult: &lab.ExperimentResult{Rows: c.rows}})
				if !ok || v.Verdict != lab.Reproduced || !strings.HasPrefix(v.Why, "Expected was otherwise: ") {
					t.Errorf("%s: %+v (%v)", c.claim, v, ok)
				}
			}
		}
	}
}
