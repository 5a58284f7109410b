package lab_test

import (
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/lab"
)

// crashed is eight rounds of a contestant that was struck three times in each.
func crashed(who string, cell lab.Params, lost, unsent, doubled, unnamed []float64) lab.Row {
	return rowOf(who, cell, rounds{
		lab.LostPerEvent: lost, lab.UnsentPerEvent: unsent, lab.DoubledPerEvent: doubled,
		lab.UnnamedPerEvent: unnamed, lab.Events: always(3),
	})
}

var killedTCP = lab.Params{"event": "kill", "line": "tcp", "rate": "400000"}

// TestJudgesOfCrashes: one record that is lost, stored twice or not named refutes the goals; what a
// port has no room for is no loss of who reads it.
func TestJudgesOfCrashes(t *testing.T) {
	none, once := always(0), []float64{0, 0, 0, 0, 0, 128. / 3, 0, 0}
	port := lab.Params{"event": "kill", "line": "pty", "rate": "400000"}
	upgraded := lab.Params{"event": "restart", "line": "tcp", "rate": "400000"}
	for claim, c := range map[string]struct {
		who  string
		cell lab.Params
	}{
		"A killed recorder of `isolate: process` loses no byte of a connection, and stores none twice.": {
			"tallywheel/process recorder", killedTCP,
		},
		"A killed reader of `isolate: process` loses no byte of a connection, and stores none twice.": {
			"tallywheel/process reader", killedTCP,
		},
		"An upgrade with `isolate: process` loses no byte of a connection, and stores none twice.": {
			"tallywheel/process upgrade", upgraded,
		},
		"A killed recorder of `isolate: process` loses no byte that a serial port had taken, and stores none twice.": {
			"tallywheel/process recorder", port,
		},
		"A killed reader of `isolate: process` loses no byte that a serial port had taken, and stores none twice.": {
			"tallywheel/process reader", port,
		},
	} {
		want := func(verdict, why string, lost, unsent, doubled []float64) {
			t.Helper()
			wantVerdict(t, claim, verdict, why, crashed(c.who, c.cell, lost, unsent, doubled, none))
		}
		want(lab.Reproduced, "nothing lost", none, none, none)
		want(lab.NotReproduced, "a record lost", once, none, none)
		want(lab.NotReproduced, "a record twice", none, none, once)
		nobody := lab.NotReproduced
		if c.cell["line"] == "pty" {
			nobody = lab.Reproduced
		}
		want(nobody, "a record that nobody took", none, once, none)
	}
	for claim, cell := range map[string]lab.Params{
		"What a kill costs a recorder in one process, it names to the byte.":              killedTCP,
		"What an ordinary restart costs a recorder in one process, it names to the byte.": upgraded,
	} {
		lost := around(12_800)
		wantVerdict(t, claim, lab.Reproduced, "all named", crashed("tallywheel/none", cell, lost, lost, none, none))
		wantVerdict(t, claim, lab.NotReproduced, "a record not named",
			crashed("tallywheel/none", cell, lost, lost, none, once))
	}
}

// TestAdviceOnCrashes: those stand beside each other that were measured, and nobody else.
func TestAdviceOnCrashes(t *testing.T) {
	none := always(0)
	rows := []lab.Row{
		crashed("tallywheel/none", killedTCP, around(10_000), none, none, none),
		crashed("tallywheel/process recorder", killedTCP, none, none, none, none),
		crashed("tallywheel/process reader", killedTCP, none, none, none, none),
		crashed("telegraf", killedTCP, around(70_000), none, none, none),
	}
	advice := experiment(t, "recorder-crash").Advice
	said := advice(lab.View{ExperimentResult: &lab.ExperimentResult{Rows: rows}})
	for _, want := range []string{"one process 10.0", "isolated 0.0 (0.00×)", "telegraf 70.0 (7.00×)"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in the advice: %s", want, said)
		}
	}
	if strings.Contains(said, "rsyslog") {
		t.Errorf("the advice has who was not measured: %s", said)
	}
	if said := advice(lab.View{ExperimentResult: &lab.ExperimentResult{Rows: rows[:1]}}); said != "" {
		t.Errorf("advice without figures: %s", said)
	}
}
