package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func rings(ask *Asker) (all []Finding) {
	features, order := ask.Rings()
	why := map[string]string{
		"io_uring":                    "batches of reads and writes in one call: asyncfile and the log's engine uring",
		"deferred task work":          "completions are worked off when the owner asks for them, which costs less",
		"registered buffers":          "spares mapping the memory for each operation",
		"ring of buffers":             "receives that take a buffer only when there is data",
		"multishot receive":           "one submission for all that a connection receives",
		"multishot accept":            "one submission for all connections",
		"submission polling":          "no call at all to submit; costs a CPU",
		"minimum wait":                "waits for a batch without a timer of its own",
		"registered ring":             "spares a reference count a call",
		"multishot timeout":           "one submission for a timer that repeats",
		"incremental ring of buffers": "one buffer for many small receives",
		"table of direct descriptors": "descriptors that only the ring knows",
	}
	for _, name := range order {
		how := "a newer kernel has it; without it everything works by other means"
		if name == "io_uring" {
			how = "sysctl kernel.io_uring_disabled=0, or a seccomp profile of the container that allows io_uring_setup, _enter and _register; without it ordinary calls are used"
		}
		all = append(all, tried("io_uring", name, features[name], why[name], how))
	}
	return all
}

const lockBytes = 64 << 20

// cellPriority is what `tallywheel cyclic` and the cells of the guide ask for.
const cellPriority = 80

func (k Kernel) realTime(ask *Asker) []Finding {
	deadline := tried("real time", "SCHED_DEADLINE", ask.Deadline(),
		"optional: a cell with a budget, to which the kernel promises so much of each period",
		"run as root, or with CAP_SYS_NICE, and not bound to some of the CPUs of a cpuset")
	if deadline.State == Missing {
		deadline.State = Poor
	}
	return []Finding{
		tried("real time", "SCHED_FIFO", ask.FIFO(1),
			"a real-time cell, or the reader of isolate: cell, that nothing ordinary delays",
			"run as root, or set LimitRTPRIO=10 in the unit (ulimit -r), or give the program CAP_SYS_NICE"),
		tried("real time", fmt.Sprintf("SCHED_FIFO %d", cellPriority), ask.FIFO(cellPriority),
			"a cell before the kernel's own threads for interrupts, which have 50",
			fmt.Sprintf("run as root, or set LimitRTPRIO=%d in the unit (ulimit -r), or give the program CAP_SYS_NICE; a cgroup of version 1 needs microseconds in cpu.rt_runtime_us, and so do its parents", cellPriority)),
		deadline,
		tried("real time", "memory lock of 64 MiB", ask.Lock(lockBytes), "no page fault while time is kept",
			"LimitMEMLOCK=infinity in the unit (ulimit -l unlimited), or CAP_IPC_LOCK"),
		tried("real time", "memory lock of a whole program", ask.LockAll(),
			"a cell locks all that it touches, and Go reserves much more than that",
			"LimitMEMLOCK=infinity in the unit (ulimit -l unlimited), or CAP_IPC_LOCK"),
		k.setting("real time", "real-time throttling", "/proc/sys/kernel/sched_rt_runtime_us", "950000",
			"leaves 5 % to others when a real-time thread runs away: better on than off",
			func(v string) bool { return v != "-1" }, false),
	}
}

func (k Kernel) tracing(ask *Asker) []Finding {
	how := "sysctl kernel.perf_event_paranoid=1 (what other users do becomes visible to this one), or CAP_PERFMON; some kernels are built without"
	return []Finding{
		tried("tracing", "perf events", ask.Perf(),
			"counters of the lab and of perf; the lab counts by other means without", how),
		tried("tracing", "BPF", ask.BPF(), "latency inside the kernel: the probes",
			"run as root or with CAP_BPF; some containers and kernels have none"),
		k.exists("tracing", "tracefs", "/sys/kernel/tracing/events", "what happened inside the kernel, event by event",
			"mount -t tracefs tracefs /sys/kernel/tracing, as root"),
	}
}

func (k Kernel) exists(area, name, path, why, how string) Finding {
	f := Finding{Area: area, Name: name, State: Good, Found: path, Wanted: "there", Why: why}
	if _, err := k.stat(path); err != nil {
		f.State, f.Found, f.How = Missing, "there is no "+path, how
	}
	return f
}

func (k Kernel) memory(ask *Asker) []Finding {
	thp := k.setting("memory", "transparent huge pages", "/sys/kernel/mm/transparent_hugepage/enabled", "madvise",
		"always makes the kernel collapse pages under a program that keeps time",
		func(v string) bool { return !strings.Contains(v, "[always]") }, true)
	huge := tried("memory", "huge pages", ask.HugePage(), "optional: fewer TLB misses for large buffers",
		"sysctl -w vm.nr_hugepages=16 reserves 32 MiB for nothing else")
	if huge.State == Missing {
		huge.State = Poor
	}
	return []Finding{thp, huge}
}

func (k Kernel) cpu() (all []Finding) {
	for _, path := range k.glob("/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor") {
		name := "frequency governor, " + strings.Split(path, "/")[5]
		all = append(all, k.setting("cpu", name, path, "performance",
			"a CPU that clocks down adds tens of µs to the first wake-up, and makes measurements wander",
			func(v string) bool { return v == "performance" }, true))
	}
	if len(all) == 0 {
		all = append(all, Finding{
			Area: "cpu", Name: "frequency governor", State: Unknown, Found: "none that this system shows",
			Wanted: "performance",
			Why:    "a CPU that clocks down adds tens of µs to the first wake-up; under a hypervisor the host decides",
		})
	}
	all = append(all, k.setting("cpu", "clock source",
		"/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc, arch_sys_counter or kvm-clock",
		"others are read by a system call, a microsecond each", func(v string) bool {
			return slices.Contains([]string{"tsc", "arch_sys_counter", "kvm-clock", "hyperv_clocksource_tsc_page"}, v)
		}, false))
	return append(all, k.quota())
}

// clock looks whether a time service keeps the clock.
func clock(ask *Asker) Finding {
	f := Finding{
		Area: "clock", Name: "clock synchronised", State: Good, Found: "yes", Wanted: "yes",
		Why: "times of records compare across starts, and keep.age removes what earlier starts have recorded",
	}
	on, err := ask.Clock()
	switch {
	case err != nil:
		f.State, f.Found = Unknown, err.Error()
	case !on:
		f.State, f.Found = Poor, "no"
		f.How = "timedatectl set-ntp true, or run chrony or ntpd; without a network, a GPS receiver or a real-time clock with a battery, and keep.size"
	}
	return f
}

// quota looks for a limit on the CPU time of this group of processes.
func (k Kernel) quota() Finding {
	f := Finding{
		Area: "cpu", Name: "CPU limit of the cgroup", State: Good, Found: "none", Wanted: "none",
		Why: "when a quota is used up, all threads stop until the next period, up to 100 ms",
	}
	for _, path := range []string{"/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"} {
		if v, there := k.read(path); there && v != "-1" && !strings.HasPrefix(v, "max") {
			f.State, f.Found = Poor, v+" µs, in "+path
			f.How = "CPUQuota= in the unit, --cpus of the container: take it away, or give a CPU more than the recorder needs"
		}
	}
	return f
}

func (k Kernel) limits(ask *Asker) []Finding {
	const wanted = 65536
	f := Finding{
		Area: "limits", Name: "open files", State: Good, Wanted: strconv.Itoa(wanted),
		Why: "each source, connection and segment is one",
	}
	soft, hard, err := ask.Files()
	switch {
	case err != nil:
		f.State, f.Found = Unknown, err.Error()
	case hard < wanted:
		f.State, f.Found = Poor, fmt.Sprintf("%d, at most %d", soft, hard)
		f.How = "LimitNOFILE=1048576 in the unit (ulimit -n)"
	default: // Go raises the soft limit to the hard one by itself
		f.Found = fmt.Sprintf("%d, at most %d", soft, hard)
	}
	return []Finding{f}
}

// serialPorts looks at the knobs of the drivers of the ports that are there.
func (k Kernel) serialPorts(ask *Asker) (all []Finding) {
	ports, err := ask.Ports()
	if err != nil || len(ports) == 0 {
		found := "none"
		if err != nil {
			found = err.Error()
		}
		return []Finding{{
			Area: "serial", Name: "ports", State: Unknown, Found: found, Wanted: "at least one",
			Why: "`tallywheel sim` makes some to try",
		}}
	}
	number := func(least, most int) func(string) bool {
		return func(v string) bool { n, err := strconv.Atoi(v); return err == nil && n >= least && n <= most }
	}
	for _, p := range ports {
		knobs := 0
		for _, knob := range []struct {
			path, name, wanted, why string
			ok                      func(string) bool
		}{
			{
				"/sys/class/tty/" + p + "/device/latency_timer", "latency timer", "1",
				"the adapter holds bytes back for so many ms", number(1, 1),
			},
			{
				"/sys/class/tty/" + p + "/rx_trig_bytes", "receive trigger", "8",
				"the UART interrupts at so many bytes of its FIFO: what is left must hold until that is served",
				number(1, 8),
			},
		} {
			if _, there := k.read(knob.path); there {
				knobs++
				all = append(all,
					k.setting("serial", p+", "+knob.name, knob.path, knob.wanted, knob.why, knob.ok, true))
			}
		}
		uart := k.uart(p)
		all = append(all, uart...)
		if knobs == 0 && len(uart) == 0 {
			all = append(all, Finding{
				Area: "serial", Name: p, State: Good, Found: "a driver without knobs",
				Wanted: "–", Why: "nothing to set but the line itself",
			})
		}
	}
	return all
}

// sysctls are those that articles name and those that matter to this program.
func (k Kernel) sysctls() []Finding {
	least := func(want uint64) func(string) bool {
		return func(v string) bool { n, err := strconv.ParseUint(v, 10, 64); return err == nil && n >= want }
	}
	most := func(want uint64) func(string) bool {
		return func(v string) bool { n, err := strconv.ParseUint(v, 10, 64); return err == nil && n <= want }
	}
	swap := k.setting("memory", "vm.swappiness", "/proc/sys/vm/swappiness", "10",
		"a recorder that is paged out stops for as long as its disk takes", most(10), true)
	if swaps, there := k.read("/proc/swaps"); there && swap.State == Poor && strings.Count(swaps, "\n") == 0 {
		swap.State, swap.How, swap.Fix = Good, "", nil
		swap.Found += ", and there is no swap: it does nothing"
	}
	return []Finding{
		swap,
		k.setting("network", "net.core.rmem_max", "/proc/sys/net/core/rmem_max", "4194304",
			"how much a UDP source may hold while the reader is away; beyond it datagrams are lost, and counted",
			least(4<<20), true),
		k.setting("network", "net.core.somaxconn", "/proc/sys/net/core/somaxconn", "4096",
			"connections that may wait to be accepted", least(4096), true),
		k.setting("network", "net.ipv4.tcp_max_syn_backlog", "/proc/sys/net/ipv4/tcp_max_syn_backlog", "1024",
			"connections that may wait for their handshake", least(1024), true),
		k.setting("limits", "fs.aio-max-nr", "/proc/sys/fs/aio-max-nr", "65536",
			"only for programs that use libaio, such as fio; io_uring does not count against it", least(65536), false),
		k.setting("limits", "fs.file-max", "/proc/sys/fs/file-max", "1000000", "open files of the whole system",
			least(1_000_000), true),
	}
}
