package lab

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// FIO is fio as a contestant: the arguments besides those that every run has.
func FIO(name string, args func(b *Bench, cell Params) []string) *Contestant {
	return &Contestant{
		Name: name, Program: Tool("fio", "apt install fio"),
		Command: func(b *Bench, cell Params, length time.Duration) []string {
			// fio takes whole seconds or milliseconds
			return append(args(b, cell), "--name=lab", "--time_based",
				"--runtime="+strconv.FormatInt(length.Milliseconds(), 10)+"ms", "--output-format=json")
		},
		Output: fioOutput,
	}
}

// fioOutput reads what fio says of one job. Its CPU time is that of the job, without fio's own
// start.
func fioOutput(out []byte, _ time.Duration) (Metrics, error) {
	type side struct {
		IOs       float64 `json:"total_ios"`
		RuntimeMs float64 `json:"runtime"`
		Bytes     float64 `json:"io_bytes"`
		Clat      struct {
			Percentile map[string]float64 `json:"percentile"`
			Max        float64            `json:"max"`
		} `json:"clat_ns"`
	}
	var r struct {
		Jobs []struct {
			Read, Write side
			RuntimeMs   float64 `json:"job_runtime"`
			User        float64 `json:"usr_cpu"`
			System      float64 `json:"sys_cpu"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return nil, fmt.Errorf("fio's output: %w", err)
	}
	if len(r.Jobs) != 1 {
		return nil, fmt.Errorf("fio's output has %d jobs", len(r.Jobs))
	}
	j := r.Jobs[0]
	s := j.Read
	if j.Write.IOs > s.IOs {
		s = j.Write
	}
	if s.IOs == 0 || s.RuntimeMs == 0 {
		return nil, fmt.Errorf("fio did nothing")
	}
	m := Metrics{
		"ops": s.IOs, "ops_per_s": s.IOs / s.RuntimeMs * 1e3, "ns_per_op": s.RuntimeMs * 1e6 / s.IOs,
		"wall_s":   s.RuntimeMs / 1e3,
		"MB_per_s": s.Bytes / 1e3 / s.RuntimeMs, "cpu_us_per_op": (j.User + j.System) / 100 * j.RuntimeMs * 1e3 / s.IOs,
	}
	for metric, key := range map[Metric]string{
		LatencyP50: "50.000000", LatencyP90: "90.000000", LatencyP99: "99.000000",
		LatencyP999: "99.900000", LatencyP9999: "99.990000",
	} {
		if v, ok := s.Clat.Percentile[key]; ok && s.IOs >= float64(valuesOf(metric)) {
			m[metric.name] = v / 1e3
		}
	}
	if s.Clat.Max > 0 {
		m["latency_us_max"] = s.Clat.Max / 1e3
	}
	return m, nil
}
