package lab_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/tallywheel/tallywheel/lab"
)

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
	type row struct {
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
	rows, err := parquet.Read[row](bytes.NewReader(b.Bytes()), int64(b.Len()))
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
