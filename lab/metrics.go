package lab

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Metric is one of the figures of a turn. There are no others than those below, so that a misspelt
// one does not compile.
type Metric struct{ name string }

// The metrics. Their names, which contestants print and results have, are the same in every
// experiment and stay so.
var (
	OpsPerSecond         = metric("ops_per_s", "1/s", "operations", more)
	NsPerOp              = metric("ns_per_op", "ns", "time an operation", less)
	MBPerSecond          = metric("MB_per_s", "MB/s", "throughput", more)
	CPUPerOp             = metric("cpu_us_per_op", "µs", "CPU time an operation", less)
	CPUUserPerOp         = metric("cpu_user_us_per_op", "µs", "CPU time an operation, in the program", less)
	CPUSystemPerOp       = metric("cpu_system_us_per_op", "µs", "CPU time an operation, in the kernel", less)
	Wall                 = metric("wall_s", "s", "time on the clock", neither)
	Others               = metric("others_percent", "%", "CPU time of the machine that went to others", neither)
	Steal                = metric("steal_percent", "%", "CPU time that the hypervisor took", neither)
	Throttled            = metric("throttled", "times", "times a CPU limit stopped it", neither)
	CPUPercent           = metric("cpu_percent", "%", "CPU", less)
	CPUPerMB             = metric("cpu_ms_per_MB", "ms/MB", "CPU time a megabyte", less)
	LatencyMean          = metric("latency_us_mean", "µs", "latency, mean", less)
	LatencyP50           = metric("latency_us_p50", "µs", "latency, median", less)
	LatencyP90           = metric("latency_us_p90", "µs", "latency, 90 %", less)
	LatencyP95           = metric("latency_us_p95", "µs", "latency, 95 %", less)
	LatencyP99           = metric("latency_us_p99", "µs", "latency, 99 %", less)
	LatencyP999          = metric("latency_us_p999", "µs", "latency, 99.9 %", less)
	LatencyP9999         = metric("latency_us_p9999", "µs", "latency, 99.99 %", less)
	LatencyMax           = metric("latency_us_max", "µs", "latency, longest", less)
	SyscallsPerOp        = metric("syscalls_per_op", "calls", "system calls an operation", less)
	SyscallsPerMB        = metric("syscalls_per_MB", "calls/MB", "system calls a megabyte", less)
	ContextSwitchesPerOp = metric("context_switches_per_op", "switches", "context switches an operation", less)
	PageFaultsPerOp      = metric("page_faults_per_op", "faults", "page faults an operation", less)
	AllFaultsPerOp       = metric("all_faults_per_op", "faults", "page faults an operation, with major ones", less)
	MajorFaultsPerOp     = metric("major_faults_per_op", "faults", "major page faults an operation", less)
	RSS                  = metric("rss_bytes", "B", "memory", less)
	AllocsPerOp          = metric("allocs_per_op", "allocs", "allocations an operation", less)
	AllocsPerMB          = metric("allocs_per_MB", "allocs/MB", "allocations a megabyte", less)
	GCCycles             = metric("gc_cycles", "cycles", "garbage collections", less)
	GCPause              = metric("gc_pause_us", "µs", "pauses of the garbage collector", less)
	GCPauseMean          = metric("gc_pause_mean_us", "µs", "one pause of the garbage collector, mean", less)
	BinaryBytes          = metric("binary_bytes", "B", "size of the program", less)
	BytesPerConn         = metric("bytes_per_conn", "B", "memory a connection", less)
	Unsent               = metric("unsent", "requests", "requests due and not sent", less)
	SentFrames           = metric("sent_frames", "frames", "frames sent", neither)
	LostFrames           = metric("lost_frames", "frames", "frames lost", less)
	FalseFrames          = metric("false_frames", "frames", "damaged frames taken for good", less)
	DamagedFrames        = metric("damaged_frames", "frames", "frames sent damaged", neither)
	DroppedFrames        = metric("dropped_frames", "frames", "frames left out by the device", neither)
	RepeatedFrames       = metric("repeated_frames", "frames", "frames sent twice", neither)
	Unplugged            = metric("unplugged", "times", "times the port was unplugged", neither)
	LostAtPort           = metric("lost_at_port_frames", "frames", "frames the port had no room for", less)
	LostByPolicy         = metric("lost_by_policy_frames", "frames", "frames given up by the policy", less)
	ErrorBound           = metric("error_rate_at_most", "", "error rate, at most (95 %)", less)
	LostPercent          = metric("lost_percent", "%", "frames lost", less)
	RateVariation        = metric("rate_variation_percent", "%", "variation of throughput, 10 ms slices", less)
	ScaleUp              = metric("scale_up_us", "µs", "delay until the pool has grown", less)
	PredictedMBPerSecond = metric("predicted_MB_per_s", "MB/s", "carried, by arithmetic", neither)
	FramingPercent       = metric("framing_percent", "%", "of the line for framing", neither)
	ServeWithin          = metric("serve_within_us", "µs", "to serve an interrupt at 14 of 16 bytes", neither)
	ServeHalfWithin      = metric("serve_half_within_us", "µs", "to serve an interrupt at 8 of 16 bytes", neither)
	SafeBaud             = metric("safe_baud", "Bd", "rate up to which a FIFO of 16 would not overrun", more)
	CachedPercent        = metric("cached_percent", "%", "of the file cached at the end", neither)
	FileBytes            = metric("file_bytes", "B", "size of the file", neither)
	Threads              = metric("threads", "threads", "threads of the program", less)
	BlockedP50           = metric("blocked_us_p50", "µs", "blocked in a read, median", neither)
	HandledP50           = metric("handled_us_p50", "µs", "work on what a read brought, median", less)
	GrownBytes           = metric("grown_bytes", "B", "memory for stacks, more at work than at rest", less)
	Answer               = metric("answer", "", "answer", neither)
	OpenedPerSecond      = metric("opened_per_s", "1/s", "connections opened", more)
	FailedPerEvent       = metric("failed_per_event", "requests", "requests that failed, an event", less)
	LostPerEvent         = metric("lost_bytes_per_event", "B", "bytes taken and lost, an event", less)
	UnsentPerEvent       = metric("unsent_bytes_per_event", "B", "bytes that nobody took, an event", less)
	DoubledPerEvent      = metric("doubled_bytes_per_event", "B", "bytes stored twice, an event", less)
	UnnamedPerEvent      = metric("unnamed_bytes_per_event", "B", "bytes missing that it does not name, an event", less)
	LongestGap           = metric("longest_gap_ms", "ms", "longest time of which nothing is stored", less)
	Events               = metric("events", "times", "times it was struck", neither)
	RefusedPerSecond     = metric("refused_per_s", "1/s", "refused", less)
	DescriptorDrift      = metric("descriptor_drift", "descriptors", "descriptors more at the end", less)
	GoroutineDrift       = metric("goroutine_drift", "goroutines", "goroutines more at the end", less)
	DescriptorLeak       = metric("descriptors_per_1000_requests", "in 1,000 requests", "descriptors more", less)
	GoroutineLeak        = metric("goroutines_per_1000_requests", "in 1,000 requests", "goroutines more", less)
	AllocationVariation  = metric("allocation_variation_percent", "%",
		"variation of what is allocated, fifths of a turn", less)
	LockWait             = metric("lock_wait_percent", "%", "CPU time waited for locks", less)
	InvoluntaryPerOp     = metric("involuntary_per_op", "switches", "involuntary context switches an operation", less)
	MissedReleases       = metric("missed_releases", "releases", "releases missed", less)
	PeriodStddev         = metric("period_stddev_us", "µs", "standard deviation of the period", less)
	FaultsAfterSetUp     = metric("faults_after_setup", "faults", "page faults behind the set-up", less)
	FirstLine            = metric("first_line_s", "s", "from the kernel's start to the first line", less)
	ConstantsP50         = metric("constants_ns_p50", "ns", "until a start has its constants, median", less)
	LoadedBytes          = metric("loaded_bytes", "B", "what of the program is loaded", less)
	WaitingBytes         = metric("waiting_bytes", "B", "memory of one that waits", less)
	Stddev               = metric("stddev_us", "µs", "standard deviation", less)
	StoppingP50          = metric("stopping_us_p50", "µs", "until all have stopped, median", less)
	StoppingP90          = metric("stopping_us_p90", "µs", "until all have stopped, 90 %", less)
	StoppingP99          = metric("stopping_us_p99", "µs", "until all have stopped, 99 %", less)
	StampP50             = metric("stamp_ns_p50", "ns", "to stamp the time, median", less)
	AggregateP50         = metric("aggregate_ns_p50", "ns", "to aggregate a value, median", less)
	PushP50              = metric("push_ns_p50", "ns", "to push a result into the queue, median", less)
	PathTimer            = metric("path_timer_ns", "ns", "until the timer interrupts, mean", less)
	PathIRQ              = metric("path_irq_ns", "ns", "interrupt, until the thread may run, mean", less)
	PathWake             = metric("path_wake_ns", "ns", "call, until the thread may run, mean", less)
	PathSwitch           = metric("path_switch_ns", "ns", "until it has a CPU, mean", less)
	PathUser             = metric("path_user_ns", "ns", "until its first line, mean", less)
	PathJoined           = metric("path_joined_percent", "%", "wake-ups found in the kernel", more)
	PathMissed           = metric("path_missed", "wake-ups", "wake-ups not found in the kernel", less)
	PathWakeUps          = metric("path_wakeups", "wake-ups", "wake-ups followed", neither)
	PathError            = metric("path_error_ns", "ns", "clocks contradict each other, at most", less)
	ProbeShare           = metric("probe_share_percent", "%", "of the program's latency, seen by the probe", neither)
	ProbeQueue           = metric("probe_queue_ns", "ns", "submitted until put aside, mean", less)
	ProbeComplete        = metric("probe_complete_ns", "ns", "put aside until complete, mean", neither)
	ProbeAtOnce          = metric("probe_at_once_ns", "ns", "submitted until complete, mean", neither)
	ProbeReady           = metric("probe_ready_ns", "ns", "arrived until complete, mean", less)
	ProbeReaped          = metric("probe_reaped_ns", "ns", "complete until its program can take it, mean", less)
	WayRest              = metric("way_rest_us", "µs", "the client's own, mean", neither)
	WayRequest           = metric("way_request_us", "µs", "request in the kernel, mean", less)
	WayQueue             = metric("way_queue_us", "µs", "request unread, mean", less)
	WayRead              = metric("way_read_us", "µs", "read to handler, mean", less)
	WayHandler           = metric("way_handler_us", "µs", "handler, mean", less)
	WayWrite             = metric("way_write_us", "µs", "handler to answer, mean", less)
	WayAnswer            = metric("way_answer_us", "µs", "answer in the kernel, mean", less)
	WayClient            = metric("way_client_us", "µs", "answer unread, mean", neither)
	WayShare             = metric("way_share_percent", "%", "of the load's latency, seen on the way", neither)
	ChainsFailed         = metric("chains_failed", "chains", "chains that failed", less)
	ChainsWhole          = metric("chains_whole_percent", "%", "chains whole", more)
	FragmentationPercent = metric("fragmentation_percent", "%", "huge pages lacking", less)
	FailedAllocations    = metric("failed_allocations", "times", "allocations failed", less)
	DeadPercent          = metric("dead_percent", "%", "resident memory in which nothing lives", less)
	SimulatedHours       = metric("simulated_hours", "h", "hours of a device", neither)
	AllocsAfterSetUp     = metric("allocs_after_setup", "allocs", "allocations behind the set-up", less)
)

// Which way a figure is better.
const (
	less    = -1
	neither = 0
	more    = 1
)

// Description says what a figure is.
type Description struct {
	Unit   string
	Label  string
	Better int // 1: more is better, -1: less is, 0: neither
}

var descriptions = map[string]Description{}

func metric(name, unit, label string, better int) Metric {
	descriptions[name] = Description{unit, label, better}
	return Metric{name}
}

// failures are metrics of what went wrong, or was made to. They stand first where the question is
// loss, but contestants are compared by another.
var failures = []Metric{
	SentFrames, LostFrames, LostPercent, ErrorBound, FalseFrames, DamagedFrames, DroppedFrames,
	RepeatedFrames, Unplugged, LostAtPort, LostByPolicy,
}

// decisive is the metric by which contestants are compared: the first of those shown, by name, that
// is not of failures, and that there is.
func decisive(shown []string, is func(name string) bool) string {
	for _, name := range shown {
		if !slices.Contains(failures, Named(name)) && is(name) {
			return name
		}
	}
	return ""
}

// UpTo shows an upper bound to two digits, rounded up: what is shown is a bound, too.
func UpTo(bound float64) string {
	if bound <= 0 || math.IsInf(bound, 0) || math.IsNaN(bound) {
		return fmt.Sprint(bound)
	}
	unit := math.Pow10(int(math.Floor(math.Log10(bound))) - 1)
	const rounding = 1e-9 // of the division, not of the bound
	return fmt.Sprintf("%.1e", math.Ceil(bound/unit*(1-rounding))*unit)
}

// errorBound is the rate below which that of errors is, at 95 %, if so many of n were lost: 3 ÷ n
// if none was (the rule of three), else by the Poisson distribution.
func errorBound(lost, n float64) float64 {
	_, hi := poisson(lost, 0.05)
	return hi / n
}

// poisson is the interval of the mean by which so many events come: each end is wrong by chance in
// at most such a share of cases.
func poisson(events, wrong float64) (lo, hi float64) {
	if events > manyLost { // it is as good as normal then
		z := math.Sqrt2 * math.Erfinv(1-2*wrong)
		return events - z*math.Sqrt(events), events + z*math.Sqrt(events)
	}
	atMost := func(events, mu float64) float64 { // the chance of so few
		term := math.Exp(-mu)
		sum := term
		for k := 1.0; k <= events; k++ {
			term *= mu / k
			sum += term
		}
		return sum
	}
	solve := func(lo, hi float64, isBelow func(mu float64) bool) float64 {
		for range 50 {
			if mid := (lo + hi) / 2; isBelow(mid) {
				lo = mid
			} else {
				hi = mid
			}
		}
		return hi
	}
	if events > 0 {
		lo = solve(0, events, func(mu float64) bool { return 1-atMost(events-1, mu) < wrong })
	}
	return lo, solve(events, 3*events+10, func(mu float64) bool { return atMost(events, mu) > wrong })
}

const manyLost = 400

// Calls is the metric that counts one system call an operation.
func Calls(call string) Metric { return Metric{callMetric + call} }

// Named is the metric of a name that stands in results.
func Named(name string) Metric { return Metric{name} }

// String is the metric's name in results.
func (m Metric) String() string { return m.name }

// AllMetrics lists the metrics by name, without those of single system calls.
func AllMetrics() (all []Metric) {
	for _, name := range slices.Sorted(maps.Keys(descriptions)) {
		all = append(all, Metric{name})
	}
	return all
}

// unknownIsWrong has a turn fail that has a figure of no metric: in tests, for such a name is
// misspelt. Else it is somebody's own.
var unknownIsWrong = false

// wrong says which figure is no number, which no verdict and no file of results could bear, or of
// no metric, where that is wrong.
func (m Metrics) wrong() error {
	for name, x := range m {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Errorf("%s is %v: want a number", name, x)
		}
		if unknownIsWrong && !isMetric(name) {
			return fmt.Errorf("there is no metric %q", name)
		}
	}
	return nil
}

// isMetric reports whether figures are called so. Some are only there to work out others.
func isMetric(name string) bool {
	_, ok := descriptions[name]
	return ok || strings.HasPrefix(name, callMetric) || name == "ops" || name == "cut_frames"
}

// Describe says what a metric is; one that is not known is described by its name.
func Describe(name string) Description {
	if d, ok := descriptions[name]; ok {
		return d
	}
	if call, ok := strings.CutPrefix(name, callMetric); ok {
		return Description{"calls", call + " an operation", less}
	}
	return Description{Label: strings.ReplaceAll(name, "_", " ")}
}
