package lab_test

import (
	"flag"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/tallywheel/tallywheel/lab"
)

var (
	runs = flag.Int("runs", 0,
		"how often TestSelfCheck runs the experiment noise on this machine; nothing else should run meanwhile")
	full = flag.Bool("full", false, "have TestSelfCheck run it as --full does")
)

// selfCheck is what so many runs of the experiment noise have said.
type selfCheck struct {
	runs, differ       int // and in so many the interval of two copies was not around 1
	apart, alike, none int // the verdicts on two copies: not reproduced, reproduced, not measurable
	found, not, open   int // the verdicts on one that is 10 % slower: reproduced, not, not measurable
	rounds             []string
}

func (s *selfCheck) run(t *testing.T, o lab.Options) {
	t.Helper()
	o.Dir = t.TempDir()
	e := experiment(t, "noise")
	r, err := run(t, t.Context(), o, e)
	if err != nil {
		t.Fatal(err)
	}
	copies, slower := r.Verdicts[0], r.Verdicts[1]
	same, _ := lab.View{ExperimentResult: &r}.Ratio(e.Contestants[1], e.Contestants[0], nil, lab.NsPerOp)
	s.runs++
	s.rounds = append(s.rounds, fmt.Sprint(r.Rounds))
	if same.Sure() {
		s.differ++
	}
	*map[string]*int{
		lab.NotReproduced: &s.apart, lab.Reproduced: &s.alike, lab.NotMeasurable: &s.none,
	}[copies.Verdict]++
	*map[string]*int{
		lab.Reproduced: &s.found, lab.NotReproduced: &s.not, lab.NotMeasurable: &s.open,
	}[slower.Verdict]++
	t.Logf("%d rounds; copies %s (%s), slower by 10 %%: %s (%s)", r.Rounds, copies.Here, copies.Verdict, slower.Here,
		slower.Verdict)
}

// TestSelfCheck is for a machine that does nothing else: go test ./lab -run SelfCheck -runs 20
// -full -timeout 2h -v. No verdict says of two copies of a contestant that they differ, and their
// interval is around 1 but for one run of twenty; one that is 10 % slower is found in 19 of 20; and
// beside two processes that compute all the time verdicts are "not measurable", and none is wrong.
func TestSelfCheck(t *testing.T) {
	if *runs == 0 {
		t.Skip("SKIPPED: this measures, so it wants a machine for itself; run go test ./lab -run SelfCheck -runs 20 -full -timeout 2h -v")
	}
	o := lab.Quick()
	if *full {
		o = lab.Full()
	}
	alone, beside := selfCheck{}, selfCheck{}
	for range *runs {
		alone.run(t, o)
	}
	for range 2 {
		busy := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
		busy.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := busy.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = busy.Process.Kill()
			_ = busy.Wait()
		}()
	}
	for range max(1, *runs/4) {
		beside.run(t, o)
	}
	table := "| | runs | of rounds | alike | apart | not measurable | 10 % found | not | not measurable | interval without 1 |\n|---|" +
		strings.Repeat("---|", 9) + "\n"
	for _, row := range []struct {
		name string
		selfCheck
	}{{"alone", alone}, {"beside two busy loops", beside}} {
		table += fmt.Sprintf("| %s | %d | %s | %d | %d | %d | %d | %d | %d | %d |\n", row.name, row.runs,
			strings.Join(row.rounds, " "), row.alike, row.apart, row.none, row.found, row.not, row.open, row.differ)
	}
	t.Log("\n" + table)
	if alone.apart > 0 || 20*alone.differ > *runs {
		t.Errorf("of %d runs, two copies were apart in %d, and their interval was beside 1 in %d", *runs, alone.apart,
			alone.differ)
	}
	if 20*alone.found < 19**runs {
		t.Errorf("10 %% was found in %d of %d runs", alone.found, *runs)
	}
	if beside.apart > 0 || beside.not > 0 || beside.none+beside.open < 2*beside.runs {
		t.Errorf("beside two busy loops: %+v; want no verdict", beside)
	}
}
