package doctor

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sound is a machine that does its job, and the job.
func sound(t *testing.T) (Kernel, Job) {
	k := fake(t, map[string]string{
		"/proc/sys/net/core/rmem_max": "4194304", "/proc/sys/net/core/netdev_max_backlog": "1000",
		"/proc/sys/net/core/somaxconn":           "128",
		"/proc/sys/net/ipv4/tcp_max_syn_backlog": "128",
		"/proc/meminfo":                          "MemTotal: 900000 kB\nMemAvailable:  524288 kB",
		"/sys/fs/cgroup/memory.max":              "max",
		"/sys/class/tty/ttyS0/type":              "4", "/sys/class/tty/ttyS0/rx_trig_bytes": "8",
		"/sys/class/tty/ttyUSB0/device/latency_timer": "1", "/sys/class/tty/ttyUSB9/device/latency_timer": "16",
		"/proc/sys/kernel/osrelease": "6.1.0",
	})
	k.Ask.Disk = func(string) (Disk, error) { return Disk{Bytes: 100 << 30, Files: 10_000, Bounds: true}, nil }
	return k, Job{
		FilesLeast: 40, FilesMost: 1 << 20, Backlog: 128, Datagrams: 4 << 20, Senders: 700, Memory: 512 << 20,
		Priority: 40,
		Lines: []Line{
			{Source: "a", Port: "/dev/ttyS0", TTY: "ttyS0", Baud: 115200, CharBits: 10},
			{Source: "b", Port: "usb:1", TTY: "ttyUSB0", Baud: 9600, CharBits: 10},
		},
		Dir: "/log", Reserve: 16 << 20, Segment: 64 << 20, FilesEach: 2,
	}
}

// TestJob: what does for a job is good, and a little less, or a little more asked, is not.
func TestJob(t *testing.T) {
	k, j := sound(t)
	for _, f := range k.ExamineFor(j) {
		if f.Area == job && f.State != Good {
			t.Errorf("%s: %s: %s", f.Name, f.State, f.Found)
		}
	}
	for what, c := range map[string]struct {
		change func(*Kernel, *Job)
		name   string
		want   State
		how    string // in what to do
	}{
		"fewer descriptors than peers": {
			func(_ *Kernel, j *Job) { j.FilesMost++ }, "open files", Poor,
			"LimitNOFILE=1048577",
		},
		"fewer than sources": {
			func(_ *Kernel, j *Job) { j.FilesLeast, j.FilesMost = 1<<20+1, 1<<20+1 },
			"open files", Missing, "LimitNOFILE",
		},
		"fewer than a keeper's": {
			func(_ *Kernel, j *Job) { j.FilesMost, j.FilesKept = 1<<20, 1<<20+1 },
			"open files", Poor, "LimitNOFILE=1048577",
		},
		"a receive buffer": {
			func(_ *Kernel, j *Job) { j.Datagrams++ }, "net.core.rmem_max", Poor,
			"rmem_max=4194305",
		},
		"packets of many senders": {
			func(_ *Kernel, j *Job) { j.Senders = 1001 }, "net.core.netdev_max_backlog",
			Poor, "1001",
		},
		"connections that wait": {
			func(_ *Kernel, j *Job) { j.Backlog++ }, "net.core.somaxconn", Poor,
			"somaxconn=129",
		},
		"handshakes that wait": {
			func(_ *Kernel, j *Job) { j.Backlog++ }, "net.ipv4.tcp_max_syn_backlog", Poor,
			"129",
		},
		"memory": {func(_ *Kernel, j *Job) { j.Memory++ }, "memory", Missing, "buffer"},
		"memory that may be locked": {
			func(k *Kernel,
				_ *Job,
			) {
				k.Ask.LockAll = func() error { return syscall.ENOMEM }
			}, "memory lock of a whole program",
			Missing, "LimitMEMLOCK",
		},
		"a priority": {
			func(k *Kernel,
				_ *Job,
			) {
				k.Ask.FIFO = func(int) error { return syscall.EPERM }
			}, "SCHED_FIFO 40", Missing,
			"LimitRTPRIO=40",
		},
		"a port that is not there": {
			func(_ *Kernel, j *Job) { j.Lines[1].TTY = "" }, "b, port", Missing,
			"tallywheel ports",
		},
		"a rate beyond the FIFO": {
			func(_ *Kernel, j *Job) { j.Lines[0].Baud = 921600 }, "ttyS0, receive trigger",
			Poor, "fifo_trigger: 6",
		},
		"a rate beyond any trigger": {
			func(_ *Kernel, j *Job) { j.Lines[0].Baud = 3_000_000 },
			"ttyS0, receive trigger", Poor, "at most 1500000 baud",
		},
		"a trigger too high": {
			func(_ *Kernel, j *Job) { j.Lines[0].Trigger = 15 }, "ttyS0, receive trigger",
			Poor, "fifo_trigger: 14",
		},
		"more kept than there is room": {
			func(_ *Kernel, j *Job) { j.Keep = 100 << 30 }, "room for the log", Missing,
			"keep: {size: 102320MiB}",
		},
		"full within the month": {
			func(_ *Kernel, j *Job) { j.Lines[0].Baud = 1_000_000 }, "room for the log",
			Poor, "keep: {size",
		},
		"full before its age": {
			func(_ *Kernel, j *Job) { j.KeepAge = 365 * 24 * time.Hour },
			"room for the log", Poor, "larger disk",
		},
		"nobody knows when it is full": {
			func(_ *Kernel, j *Job) { j.Lines = nil }, "room for the log", Unknown,
			"keep: {size",
		},
		"a disk that cannot be asked": {func(k *Kernel, _ *Job) {
			k.Ask.Disk = func(string) (Disk, error) { return Disk{}, errors.New("no such") }
		}, "room for the log", Unknown, ""},
		"more segments than inodes": {
			func(_ *Kernel, j *Job) { j.Segment = 1 << 20 }, "files for the log", Poor,
			"df -i",
		},
		"an adapter that holds bytes": {
			func(_ *Kernel, j *Job) { j.Lines[1].TTY = "ttyUSB9" },
			"ttyUSB9, latency timer", Poor, "latency_timer",
		},
		"memory that the group may have": {func(k *Kernel,
			_ *Job,
		) {
			put(t, *k, "/sys/fs/cgroup/memory.max", "1000000")
		}, "memory", Missing, "MemoryMax"},
	} {
		k, j := sound(t)
		c.change(&k, &j)
		f := find(t, k.ExamineFor(j), c.name)
		if f.State != c.want || !strings.Contains(f.How, c.how) || f.Found == "" || f.Wanted == "" || f.Why == "" {
			t.Errorf("%s: %+v, want %s, and to do %q", what, f, c.want, c.how)
		}
	}
}

// TestJobLeavesOut: what a job does not use is not judged by it, and no finding is there twice.
func TestJobLeavesOut(t *testing.T) {
	k, _ := sound(t)
	seen := map[string]bool{}
	for _, f := range k.ExamineFor(Job{}) {
		if f.Area == job && f.Name != "open files" && f.Name != "memory" || f.Area == "serial" || seen[f.Name] {
			t.Errorf("%+v", f)
		}
		seen[f.Name] = true
	}
	k, j := sound(t)
	j.Keep, j.Stored = 100<<30, 90<<30 // what is stored counts as room
	if f := find(t, k.ExamineFor(j), "room for the log"); f.State != Good || !strings.Contains(f.Found, "full in") {
		t.Errorf("%+v", f)
	}
	k.Ask.Disk = func(string) (Disk, error) { return Disk{Bytes: 100 << 30}, nil }
	if f := find(t, k.ExamineFor(j), "files for the log"); f.State != Good {
		t.Errorf("a file system without a bound of files: %+v", f)
	}
}

func TestKernelIsNamed(t *testing.T) {
	k, _ := sound(t)
	if f := find(t, k.Examine(), "version"); f.State != Good || f.Found != "6.1.0" {
		t.Errorf("%+v", f)
	}
	if f := find(t, fake(t, nil).Examine(), "version"); f.State != Unknown {
		t.Errorf("%+v", f)
	}
}
