package lab

import (
	"fmt"
	"testing"
)

// TestFIOOfFew: of too few operations fio's percentiles are accidents, and are left out.
func TestFIOOfFew(t *testing.T) {
	const text = `{"jobs": [{"job_runtime": 1000, "usr_cpu": 10, "sys_cpu": 20, "read": {"total_ios": %d,
		"runtime": 1000, "io_bytes": 4096, "clat_ns": {"max": 9000, "percentile":
		{"50.000000": 1000, "99.000000": 5000, "99.900000": 6000, "99.990000": 7000}}}}]}`
	for n, want := range map[int]int{499: 0, 500: 1, 5000: 2, 50_000: 3} {
		m, err := fioOutput(fmt.Appendf(nil, text, n), 0)
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, p := range []Metric{LatencyP99, LatencyP999, LatencyP9999} {
			if _, ok := m[p.name]; ok {
				got++
			}
		}
		if got != want || m[LatencyP50.name] != 1 || m[LatencyMax.name] != 9 {
			t.Errorf("of %d: %v, want %d percentiles from 99 %% on", n, m, want)
		}
	}
}
