package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/report"
)

// TestOneReportAFolder: two runs do not write their reports into one folder.
func TestOneReportAFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	first, err := takeFolder(path)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := takeFolder(path); err == nil || !strings.Contains(err.Error(), "--out") {
		t.Errorf("the second has it, too: %v %v", second, err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := takeFolder(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// TestNothingReplacesNoReport: a run that measures nothing, for a misspelt flag or because it was
// stopped, leaves a report alone that has figures, and results that it cannot read; else it writes
// its own, which says why.
func TestNothingReplacesNoReport(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // a lock that nobody else has
	nothing := &lab.Experiment{Name: "test", Contestants: []*lab.Contestant{{Name: "who"}}}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	of := func(rows ...lab.Row) *lab.Results {
		return &lab.Results{
			Schema: lab.Schema, Started: time.Unix(1e9, 0), Machine: lab.Machine{Kernel: "6.1"},
			Experiments: []lab.ExperimentResult{{Name: "before", Rows: rows}},
		}
	}
	metrics := map[string]lab.Figure{"ns_per_op": lab.Summarise("ns", []float64{1})}
	figures := lab.Row{Contestant: "who", Metrics: metrics}
	later := of(figures)
	later.Schema++
	for name, c := range map[string]struct {
		there *lab.Results
		ctx   context.Context
		only  string
		dir   string
		kept  bool
	}{
		"--only":         {of(figures), t.Context(), "nosuch", t.TempDir(), true},
		"--dir":          {of(figures), t.Context(), "", filepath.Join(t.TempDir(), "nosuch"), true},
		"stopped":        {of(figures), stopped, "", t.TempDir(), true},
		"another schema": {later, t.Context(), "nosuch", t.TempDir(), true},
		"of nothing":     {of(lab.Row{Contestant: "who", NotRun: "why"}), t.Context(), "nosuch", t.TempDir(), false},
		"none":           {nil, t.Context(), "nosuch", t.TempDir(), false},
	} {
		l := laboratory{out: t.TempDir(), dir: c.dir, only: c.only, cpu: -1}
		l.table = filepath.Join(l.out, "table.parquet")
		if c.there != nil {
			err := errors.Join(report.Write(l.out, c.there), os.WriteFile(l.table, []byte("before"), 0o600))
			if err != nil {
				t.Fatal(err)
			}
		}
		before := filesIn(t, l.out)
		var out, talk bytes.Buffer
		if err := l.run(c.ctx, []*lab.Experiment{nothing}, "test", &out, &talk); err == nil {
			t.Errorf("%s: no error", name)
		}
		if same := filesIn(t, l.out) == before; same != c.kept {
			t.Errorf("%s: the report that was there is left: %v, want %v", name, same, c.kept)
		}
		if told := strings.Contains(talk.String(), "is left as it was"); told != c.kept {
			t.Errorf("%s: %q", name, talk.String())
		}
	}
}

// TestReportThatCannotBeWritten: where the report has no room, the other experiments are run all
// the same, and shown; the error comes at the end, if the newest report could not be written
// either.
func TestReportThatCannotBeWritten(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // a lock that nobody else has
	l := laboratory{out: t.TempDir(), dir: t.TempDir(), only: "nosuch", cpu: -1}
	inTheWay := filepath.Join(l.out, "report.html", "full")
	if err := os.MkdirAll(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	of := func(name string) *lab.Experiment {
		return &lab.Experiment{Name: name, Contestants: []*lab.Contestant{{Name: "who"}}}
	}
	var out, talk bytes.Buffer
	err := l.run(t.Context(), []*lab.Experiment{of("first"), of("second")}, "test", &out, &talk)
	if err == nil || !strings.Contains(err.Error(), "report.html") {
		t.Errorf("error %v", err)
	}
	if !strings.Contains(out.String(), "first") || !strings.Contains(out.String(), "second") {
		t.Errorf("shown: %q", out.String())
	}
	if n := strings.Count(talk.String(), "the report is not written; make room"); n != 2 {
		t.Errorf("told %d times: %q", n, talk.String())
	}
}

// filesIn is the names and contents of all files in a folder.
func filesIn(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(e.Name() + "\n" + string(b))
	}
	return all.String()
}
