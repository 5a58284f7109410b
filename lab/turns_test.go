package lab_test

import (
	"flag"
	"io"
	"testing"

	"github.com/tallywheel/tallywheel/lab"
)

var turns = flag.Bool("turns", false,
	"have TestTurnsHaveWhatClaimsAsk look at all experiments, which builds all contestants and takes many minutes")

// judgedByPercentiles are experiments whose claims ask for percentiles that a short turn lacks.
var judgedByPercentiles = []string{"process-ipc", "rt-cyclic", "rt-wcet"}

// TestTurnsHaveWhatClaimsAsk: each figure that a claim asks for comes out of the shortest turn that
// its cell ever has.
func TestTurnsHaveWhatClaimsAsk(t *testing.T) {
	names := judgedByPercentiles
	if *turns {
		names = nil
		for _, e := range lab.Experiments() {
			names = append(names, e.Name)
		}
	} else if testing.Short() {
		t.Skip("SKIPPED: its turns take half a minute; run it without -short")
	}
	b := quickBench(t)
	for _, name := range names {
		t.Run(name, func(t *testing.T) { haveWhatIsAsked(t, b, experiment(t, name)) })
	}
}

func haveWhatIsAsked(t *testing.T, b *lab.Bench, e *lab.Experiment) {
	b.Dir = t.TempDir()
	if e.Prepare != nil {
		if err := e.Prepare(t.Context(), b); err != nil {
			t.Skipf("SKIPPED: %s cannot be prepared: %v; give it what that names", e.Name, err)
		}
	}
	contestants, cells, metrics := e.Asked()
	if len(metrics) == 0 {
		return // it asks whether something is so
	}
	done := map[string]lab.Metrics{}
	for i, c := range contestants {
		cell, ok := wholeCell(e, c, cells[i])
		if !ok {
			t.Errorf("%s is in no cell that has %s", c.Name, cells[i])
			continue
		}
		turn := c.Name + " at " + cell.String()
		if _, ran := done[turn]; !ran {
			m, err := b.ShortestTurn(t.Context(), e, c, cell)
			if err != nil {
				t.Logf("SKIPPED: no turn of %s: %v; give it what that names", turn, err)
				m = nil
			}
			done[turn] = m
		}
		m := done[turn]
		if m == nil {
			continue // it did not run
		}
		if _, ok := m[metrics[i].String()]; !ok {
			t.Errorf("a turn of %s has no %s", turn, metrics[i])
		}
	}
}

// wholeCell is the first cell, of a quick run if there is one there, that has the parameters and
// the contestant.
func wholeCell(e *lab.Experiment, c *lab.Contestant, want lab.Params) (lab.Params, bool) {
	all := []lab.Params{{}}
	if e.Cells != nil {
		all = append(e.Cells(lab.Quick()), e.Cells(lab.Full())...)
	}
	for _, cell := range all {
		if cell.Has(want) && (c.Skip == nil || !c.Skip(cell)) {
			return cell, true
		}
	}
	return nil, false
}

// quickBench is a bench for short turns, until the test ends.
func quickBench(t *testing.T) *lab.Bench {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	b, err := lab.NewBench(t.Context(), quickly(t), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}
