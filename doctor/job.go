package doctor

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Job is what a recorder is to do, as far as it asks something of the machine. The zero value asks
// nothing.
type Job struct {
	FilesLeast int // descriptors of a process: with one device of each source …
	FilesMost  int // … and with all peers
	FilesKept  int // of a keeper, which isolate is not to be had without; 0: there is none
	Backlog    int // connections that may come to one listener at once; 0: no listener reads all
	Datagrams  int // bytes of a UDP source's receive buffer; 0: there is none
	Senders    int // that may send at one moment
	Memory     int64
	Priority   int // in SCHED_FIFO, of a reader that keeps time in locked memory; 0: it does not
	Lines      []Line
	Unrated    int // sources whose rate nobody knows

	Dir       string // of the log
	Keep      int64  // bytes of the log at most; 0: no limit
	KeepAge   time.Duration
	Reserve   int64 // bytes of the disk that the log leaves free
	Segment   int64
	Stored    int64 // bytes of the log that are there
	FilesEach int   // a segment has on the disk
}

// Line is a serial line of a job.
type Line struct {
	Source         string
	Port           string // as configured
	TTY            string // its name today, ttyUSB0; "": it is not there
	Baud, CharBits int
	Trigger        int // of the FIFO, which opening the port sets; 0: what the driver has
}

// bytesPerSecond is what the line carries at most.
func (l Line) bytesPerSecond() float64 { return float64(l.Baud) / float64(l.CharBits) }

const job = "job" // the area of what one configuration wants

// ExamineFor looks at everything, and judges by the job what a job decides: thresholds are what it
// needs, and of serial ports there are those that it names.
func (k Kernel) ExamineFor(j Job) (all []Finding) {
	ask := thisMachine()
	if k.Ask != nil {
		ask = k.Ask
	}
	own := *ask
	own.Ports = func() (names []string, err error) {
		for _, l := range j.Lines {
			if l.TTY != "" {
				names = append(names, l.TTY)
			}
		}
		return names, nil
	}
	asked := Kernel{Root: k.Root, Ask: &own}
	mine := k.judge(j, ask)
	for _, f := range asked.Examine() {
		isMine := slices.ContainsFunc(mine, func(m Finding) bool { return m.Name == f.Name })
		if noPorts := f.Area == "serial" && f.Name == "ports"; !isMine && !noPorts {
			all = append(all, f)
		}
	}
	return append(all, mine...)
}

func (k Kernel) judge(j Job, ask *Asker) []Finding {
	all := []Finding{j.files(ask), k.room(j)}
	if j.Datagrams > 0 {
		all = append(all,
			k.atLeast("net.core.rmem_max", "/proc/sys/net/core/rmem_max", j.Datagrams,
				"the receive buffer that a UDP source asks for; what it has no room for is lost"),
			k.atLeast("net.core.netdev_max_backlog", "/proc/sys/net/core/netdev_max_backlog",
				max(usualBacklog, j.Senders),
				"packets that wait for the protocol, of each CPU: a datagram of each sender; beyond it they are lost before any socket"))
	}
	if j.Backlog > 0 {
		all = append(all,
			k.atLeast("net.core.somaxconn", "/proc/sys/net/core/somaxconn", j.Backlog,
				"after a power cut all peers of a listener connect at once"),
			k.atLeast("net.ipv4.tcp_max_syn_backlog", "/proc/sys/net/ipv4/tcp_max_syn_backlog", j.Backlog,
				"… and wait for their handshake"))
	}
	if j.Priority > 0 {
		all = append(all,
			tried(job, fmt.Sprintf("SCHED_FIFO %d", j.Priority), ask.FIFO(j.Priority),
				"cell.priority: the reader of isolate: cell",
				fmt.Sprintf("run as root, or set LimitRTPRIO=%d in the unit, or give the program CAP_SYS_NICE",
					j.Priority)),
			tried(job, "memory lock of a whole program", ask.LockAll(),
				"the reader of isolate: cell locks its memory, that of all sources with it",
				"LimitMEMLOCK=infinity in the unit (ulimit -l unlimited), or CAP_IPC_LOCK"))
	}
	for _, l := range j.Lines {
		all = append(all, k.line(l)...)
	}
	if j.Dir != "" {
		all = append(all, j.disk(ask)...)
	}
	return all
}

// usualBacklog is the kernel's own value, for lines of 100 Mbit/s.
const usualBacklog = 1000

// atLeast is a setting that must be so large.
func (k Kernel) atLeast(name, path string, least int, why string) Finding {
	return k.setting(job, name, path, strconv.Itoa(least), why,
		func(v string) bool { n, err := strconv.Atoi(v); return err == nil && n >= least }, true)
}

// files holds the descriptors that the job needs against the limit.
func (j Job) files(ask *Asker) Finding {
	f := Finding{
		Area: job, Name: "open files", State: Good, Wanted: strconv.Itoa(j.FilesMost),
		Why: fmt.Sprintf("%d for the log, the API and one device of each source, the others for peers and clients",
			j.FilesLeast),
	}
	_, hard, err := ask.Files()
	switch f.Found = strconv.FormatUint(hard, 10); {
	case err != nil:
		f.State, f.Found = Unknown, err.Error()
		return f
	case hard < uint64(j.FilesLeast):
		f.State, f.Why = Missing, f.Why+"; with less than those it may not start"
	case hard < uint64(j.FilesKept):
		f.State = Poor
		f.Why += fmt.Sprintf("; the keeper of isolate needs %d, and without them one process does all", j.FilesKept)
	case hard < uint64(j.FilesMost):
		f.State, f.Why = Poor, f.Why+"; peers that find none are refused"
	default:
		return f
	}
	f.How = fmt.Sprintf("LimitNOFILE=%d in the unit (ulimit -Hn), or fewer max_peers",
		max(1024, j.FilesMost, j.FilesKept))
	return f
}

// room holds the memory that the job takes against what is free, and what its group may have.
func (k Kernel) room(j Job) Finding {
	f := Finding{
		Area: job, Name: "memory", State: Unknown, Wanted: "at least " + bytesText(j.Memory),
		Why: "buffers of all sources and peers, and their spools under isolate, when all are full",
	}
	text, there := k.read("/proc/meminfo")
	if !there {
		f.Found = "there is no /proc/meminfo"
		return f
	}
	free, where := int64(-1), "available"
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			if n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(v), "kB")), 10,
				64); err == nil {
				free = n << 10
			}
		}
	}
	if free < 0 {
		f.Found = "/proc/meminfo does not say what is available"
		return f
	}
	if v, there := k.read("/sys/fs/cgroup/memory.max"); there {
		if n, err := strconv.ParseInt(v, 10, 64); err == nil && n < free {
			free, where = n, "at most, in /sys/fs/cgroup/memory.max"
		}
	}
	f.State, f.Found = Good, bytesText(free)+" "+where
	if free < j.Memory {
		f.State, f.How = Missing,
			"more memory (MemoryMax= in the unit, --memory of the container), a smaller buffer of the sources, or fewer max_peers"
	}
	return f
}

// served is how long a UART must be able to wait for its interrupt: an ordinary kernel holds
// interrupts off for tens of microseconds, and a guest for more.
const served = 100 * time.Microsecond

// fifos are the receive FIFOs of UARTs, in bytes, by the type that the driver has for them
// (linux/serial_core.h); others say what theirs for sending holds.
var fifos = map[string]int{"1": 1, "2": 1, "3": 1, "4": 16, "6": 32, "7": 32, "8": 64, "16": 128}

// line looks at a port of the job: whether it is there, and whether its FIFO holds what comes until
// an interrupt is served.
func (k Kernel) line(l Line) []Finding {
	there := Finding{
		Area: job, Name: l.Source + ", port", State: Good, Found: l.TTY, Wanted: l.Port,
		Why: "a source of the configuration",
	}
	if l.TTY == "" {
		there.State, there.Found, there.How = Missing, "it is not there",
			"plug it in, or look for it in `tallywheel ports`; the recorder waits for it"
		return []Finding{there}
	}
	at := "/sys/class/tty/" + l.TTY
	kind, _ := k.read(at + "/type")
	fifo := fifos[kind]
	if v, ok := k.read(at + "/xmit_fifo_size"); ok && fifo == 0 {
		fifo, _ = strconv.Atoi(v)
	}
	trigger := l.Trigger
	if v, ok := k.read(at + "/rx_trig_bytes"); ok && trigger == 0 {
		trigger, _ = strconv.Atoi(v)
	}
	if fifo == 0 || trigger == 0 || trigger > fifo { // a USB adapter, or a pty
		return []Finding{there}
	}
	slack := time.Duration(float64(fifo-trigger) / l.bytesPerSecond() * float64(time.Second))
	f := Finding{
		Area: job, Name: l.TTY + ", receive trigger", State: Good, Wanted: fmt.Sprintf("%v or more", served),
		Found: fmt.Sprintf("%v until it overruns: %d baud, %d of %d bytes raise the interrupt",
			slack.Round(time.Microsecond), l.Baud, trigger, fifo),
		Why: "an interrupt that is served later costs bytes of " + l.Source + ", which the UART counts as overrun",
	}
	if slack >= served {
		return []Finding{there, f}
	}
	f.State = Poor
	if best := fifo - int(math.Ceil(l.bytesPerSecond()*served.Seconds())); best >= 1 {
		f.How = fmt.Sprintf("serial: {fifo_trigger: %d} for the source", best)
	} else {
		f.How = fmt.Sprintf("at most %d baud with fifo_trigger: 1, flow: rtscts, or an adapter with a larger FIFO",
			int(float64((fifo-1)*l.CharBits)/served.Seconds()))
	}
	return []Finding{there, f}
}

// bytesText is a number of bytes for people.
func bytesText(n int64) string {
	v, unit := float64(n), "B"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if v < 1024 {
			break
		}
		v, unit = v/1024, next
	}
	return strconv.FormatFloat(v, 'f', min(1, max(0, len(unit)-1)), 64) + " " + unit
}
