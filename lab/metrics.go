package lab

import "strings"

// Metric says what a figure is.
type Metric struct {
	Unit   string
	Label  string
	Better int // 1: more is better, -1: less is, 0: neither
}

// metrics are all figures there are. Names are the same in every experiment and stay so.
var metrics = map[string]Metric{
	"ops_per_s":               {"1/s", "operations", 1},
	"ns_per_op":               {"ns", "time an operation", -1},
	"MB_per_s":                {"MB/s", "throughput", 1},
	"cpu_us_per_op":           {"µs", "CPU time an operation", -1},
	"cpu_user_us_per_op":      {"µs", "CPU time an operation, in the program", -1},
	"cpu_system_us_per_op":    {"µs", "CPU time an operation, in the kernel", -1},
	"wall_s":                  {"s", "time on the clock", 0},
	"others_percent":          {"%", "CPU time of the machine that went to others", 0},
	"steal_percent":           {"%", "CPU time that the hypervisor took", 0},
	"throttled":               {"times", "times a CPU limit stopped it", 0},
	"cpu_percent":             {"%", "CPU", -1},
	"cpu_ms_per_MB":           {"ms/MB", "CPU time a megabyte", -1},
	"latency_us_p50":          {"µs", "latency, median", -1},
	"latency_us_p90":          {"µs", "latency, 90 %", -1},
	"latency_us_p99":          {"µs", "latency, 99 %", -1},
	"latency_us_p999":         {"µs", "latency, 99.9 %", -1},
	"latency_us_p9999":        {"µs", "latency, 99.99 %", -1},
	"latency_us_max":          {"µs", "latency, longest", -1},
	"syscalls_per_op":         {"calls", "system calls an operation", -1},
	"syscalls_per_MB":         {"calls/MB", "system calls a megabyte", -1},
	"context_switches_per_op": {"switches", "context switches an operation", -1},
	"page_faults_per_op":      {"faults", "page faults an operation", -1},
	"major_faults_per_op":     {"faults", "major page faults an operation", -1},
	"rss_bytes":               {"B", "memory", -1},
	"allocs_per_op":           {"allocs", "allocations an operation", -1},
	"allocs_per_MB":           {"allocs/MB", "allocations a megabyte", -1},
	"gc_cycles":               {"cycles", "garbage collections", -1},
	"gc_pause_us":             {"µs", "pauses of the garbage collector", -1},
	"binary_bytes":            {"B", "size of the program", -1},
	"bytes_per_conn":          {"B", "memory a connection", -1},
	"unsent":                  {"requests", "requests due and not sent", -1},
	"sent_frames":             {"frames", "frames sent", 0},
	"lost_frames":             {"frames", "frames lost", -1},
	"false_frames":            {"frames", "damaged frames taken for good", -1},
	"lost_percent":            {"%", "frames lost", -1},
	"rate_variation_percent":  {"%", "variation of throughput, 10 ms slices", -1},
	"scale_up_us":             {"µs", "delay until the pool has grown", -1},
	"predicted_MB_per_s":      {"MB/s", "throughput, predicted", 0},
	"involuntary_per_op":      {"switches", "involuntary context switches an operation", -1},
}

// Describe says what a metric is; one that is not known is described by its name.
func Describe(name string) Metric {
	if m, ok := metrics[name]; ok {
		return m
	}
	if call, ok := strings.CutPrefix(name, callMetric); ok {
		return Metric{"calls", call + " an operation", -1}
	}
	return Metric{Label: strings.ReplaceAll(name, "_", " ")}
}
