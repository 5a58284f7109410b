package lab_test

import (
	"bytes"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/tallywheel/tallywheel/lab"
)

// sample is a row of the table, as whoever reads it finds it by its columns' names.
type sample struct {
	Started    int64             `parquet:"started,timestamp(millisecond)"`
	Kernel     string            `parquet:"kernel"`
	Experiment string            `parquet:"experiment"`
	Contestant string            `parquet:"contestant"`
	Params     map[string]string `parquet:"params"`
	Metric     string            `parquet:"metric"`
	Unit       string            `parquet:"unit"`
	Round      int32             `parquet:"round"`
	Value      *float64          `parquet:"value,optional"`
	NotRun     *string           `parquet:"not_run,optional"`
}

// inTable holds what was measured to the Parquet file of it: a row for each round of each figure of
// each contestant, in the figure's unit, and one that says why for what was not run.
func inTable(t *testing.T, e lab.ExperimentResult) {
	t.Helper()
	var b bytes.Buffer
	if err := (&lab.Results{Experiments: []lab.ExperimentResult{e}}).WriteParquet(&b); err != nil {
		t.Fatal(err)
	}
	rows, err := parquet.Read[sample](bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	has := func(row lab.Row, what func(s sample) bool) bool {
		return slices.ContainsFunc(rows, func(s sample) bool {
			return s.Experiment == e.Name && s.Contestant == row.Contestant && maps.Equal(s.Params, row.Params) &&
				what(s)
		})
	}
	for _, row := range e.Rows {
		for name, f := range row.Metrics {
			unit := lab.Describe(name).Unit
			for i, v := range f.Samples {
				if !has(row, func(s sample) bool {
					return s.Metric == name && s.Unit == unit && int(s.Round) == i+1 && s.Value != nil && *s.Value == v
				}) {
					t.Errorf("no row has %s of %s at %s, round %d: %g", name, row.Contestant, row.Params, i+1, v)
				}
			}
		}
		if row.NotRun != "" && !has(row, func(s sample) bool { return s.NotRun != nil && *s.NotRun == row.NotRun }) {
			t.Errorf("no row says that %s was not run at %s: %s", row.Contestant, row.Params, row.NotRun)
		}
	}
}

// TestParquet: each round of each figure is a row, read back by its name; what was not run is one
// that says why.
func TestParquet(t *testing.T) {
	r := &lab.Results{
		Schema: lab.Schema, Started: time.UnixMilli(1_764_000_000_123),
		Machine: lab.Machine{CPU: "a CPU", Kernel: "6.18"},
		Experiments: []lab.ExperimentResult{{Name: "rt-suite", Plane: "realtime", Rows: []lab.Row{
			{Contestant: "go", Params: lab.Params{"trigger": "timer"}, Metrics: map[string]lab.Figure{
				"stamp_ns_p50": lab.Summarise("ns", []float64{8, 7.5}),
				"ops_per_s":    lab.Summarise("1/s", []float64{5000}),
			}},
			{Contestant: "rust", Params: lab.Params{}, NotRun: "no rustc"},
		}}},
	}
	var b bytes.Buffer
	if err := r.WriteParquet(&b); err != nil {
		t.Fatal(err)
	}
	rows, err := parquet.Read[sample](bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil || len(rows) != 4 {
		t.Fatalf("%d rows: %v", len(rows), err)
	}
	for i, want := range []struct {
		metric, unit string
		round        int32
		value        float64
	}{{"ops_per_s", "1/s", 1, 5000}, {"stamp_ns_p50", "ns", 1, 8}, {"stamp_ns_p50", "ns", 2, 7.5}} {
		got := rows[i]
		if got.Metric != want.metric || got.Unit != want.unit || got.Round != want.round || got.Value == nil ||
			*got.Value != want.value || got.NotRun != nil ||
			got.Started != r.Started.UnixMilli() || got.Kernel != "6.18" || got.Experiment != "rt-suite" ||
			got.Contestant != "go" || got.Params["trigger"] != "timer" {
			t.Errorf("row %d is %+v, want %+v", i, got, want)
		}
	}
	if last := rows[3]; last.Value != nil || last.NotRun == nil || *last.NotRun != "no rustc" ||
		last.Contestant != "rust" {
		t.Errorf("what was not run is %+v", last)
	}
}
