package lab

import (
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

// sampleRow is a figure of one contestant in one cell and one round, as a row of a Parquet file. A
// contestant that was not run has one row without a figure, which says why.
type sampleRow struct {
	Started    int64             `parquet:"started,timestamp(millisecond)"`
	CPU        string            `parquet:"cpu,dict"`
	Kernel     string            `parquet:"kernel,dict"`
	Experiment string            `parquet:"experiment,dict"`
	Plane      string            `parquet:"plane,dict"`
	Contestant string            `parquet:"contestant,dict"`
	Params     map[string]string `parquet:"params"`
	Metric     string            `parquet:"metric,dict"`
	Unit       string            `parquet:"unit,dict"`
	Round      int32             `parquet:"round"`
	Value      *float64          `parquet:"value,optional"`
	NotRun     *string           `parquet:"not_run,optional,dict"`
}

// WriteParquet writes the rounds as a table: a row for each metric and round of each contestant in
// each cell. Rounds count from 1, in the order in which they ran.
func (r *Results) WriteParquet(w io.Writer) error {
	p := parquet.NewGenericWriter[sampleRow](w, parquet.Compression(&zstd.Codec{Level: zstd.SpeedDefault}),
		parquet.CreatedBy("tallywheel", "1", ""))
	for _, e := range r.Experiments {
		for _, row := range e.Rows {
			if _, err := p.Write(r.samples(&e, &row)); err != nil {
				return err
			}
		}
	}
	return p.Close()
}

func (r *Results) samples(e *ExperimentResult, row *Row) (all []sampleRow) {
	one := sampleRow{
		Started: r.Started.UnixMilli(), CPU: r.Machine.CPU, Kernel: r.Machine.Kernel,
		Experiment: e.Name, Plane: e.Plane, Contestant: row.Contestant, Params: row.Params,
	}
	if row.NotRun != "" {
		missing := one
		missing.NotRun = &row.NotRun
		all = append(all, missing)
	}
	var names []string
	for name := range row.Metrics {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		f := row.Metrics[name]
		for i := range f.Samples {
			s := one
			s.Metric, s.Unit, s.Round, s.Value = name, f.Unit, int32(f.Round(i)+1), &f.Samples[i]
			all = append(all, s)
		}
	}
	return all
}
