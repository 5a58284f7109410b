package lab

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// Machine says where results come from. It serves to be read; nothing is decided by it.
type Machine struct {
	OS          string `json:"os"`
	Arch        string `json:"arch"`
	Kernel      string `json:"kernel"`
	CPU         string `json:"cpu"`
	CPUs        int    `json:"cpus"` // that this process may use
	MemoryBytes int64  `json:"memory_bytes"`
	Governor    string `json:"governor,omitempty"` // of the CPU's frequency
	Clock       string `json:"clock,omitempty"`
	Disk        string `json:"disk,omitempty"` // file system of the folder where files are made
	Virtual     string `json:"virtual,omitempty"`
	Go          string `json:"go"`
}

// ThisMachine describes the machine; dir is where files will be made.
func ThisMachine(dir string) Machine {
	m := Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version()}
	m.Kernel = word("/proc/sys/kernel/osrelease")
	m.CPU = after("/proc/cpuinfo", "model name")
	if m.CPU == "" {
		m.CPU = runtime.GOARCH
	}
	if kb, err := strconv.ParseInt(strings.TrimSuffix(after("/proc/meminfo", "MemTotal"), " kB"), 10, 64); err == nil {
		m.MemoryBytes = kb << 10
	}
	m.Governor = word("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
	m.Clock = word("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	if strings.Contains(" "+after("/proc/cpuinfo", "flags")+" ", " hypervisor ") {
		m.Virtual = "under a hypervisor"
	}
	m.Disk = fileSystem(dir)
	return m
}

// fileSystem names the type of the file system that a folder is on, from its entry in the list of
// mounts.
func fileSystem(dir string) string {
	if dir == "" {
		dir = "."
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return ""
	}
	best, kind := "", ""
	for line := range bytes.Lines(mounts) {
		if f := strings.Fields(string(line)); len(f) > 2 && len(f[1]) >= len(best) &&
			(f[1] == "/" || strings.HasPrefix(dir+"/", f[1]+"/")) {
			best, kind = f[1], f[2]
		}
	}
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil {
		return kind
	}
	return kind + ", " + strconv.FormatInt(int64(st.Blocks)*int64(st.Bsize)>>30, 10) + " GiB"
}

func word(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// after returns the text behind NAME: in a file of such lines.
func after(path, name string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(b) {
		if k, v, ok := strings.Cut(string(line), ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
