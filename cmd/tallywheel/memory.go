package main

import (
	"bufio"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/tallywheel/tallywheel/api"
	"github.com/tallywheel/tallywheel/config"
)

// What a recorder needs, in bytes, beside what the API may: a rough upper bound.
const (
	memoryOwn    = 64 << 20 // the program, the log's staging and indexes, samples for the charts
	memoryDevice = 1 << 20  // of one device, beside its buffer: ring, decoder, book, histogram
)

// limitMemory tells Go's runtime how much memory it should get by with: it collects garbage more
// often before it takes more. What is needed after all is still had. GOMEMLIMIT, where it is set,
// is the user's word.
func limitMemory(c config.Config, log *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	limit := memoryFor(c, os.DirFS("/"))
	debug.SetMemoryLimit(limit)
	log.Info("memory", "soft_limit", config.Size(limit))
}

// memoryFor is twice what the recorder may need, for that is what garbage may take, and at most
// nine tenths of what the machine has and the control group gives: beyond all of that the kernel
// ends processes.
func memoryFor(c config.Config, root fs.FS) int64 {
	var need int64 = memoryOwn + int64(c.Devices())*memoryDevice
	for _, s := range c.Sources {
		devices := int64(1)
		if s.TCP.All() {
			devices += int64(s.TCP.MaxPeers)
		}
		need += devices * int64(s.Buffer)
	}
	if !c.API.Off() {
		need += api.Memory
	}
	limit := min(2*need, machineMemory(root)/10*9, groupMemory(root)/10*9)
	return limit &^ (1<<20 - 1)
}

// machineMemory is what the machine has, in bytes; math.MaxInt64: it cannot be known.
func machineMemory(root fs.FS) int64 {
	b, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return math.MaxInt64
	}
	var kib int64
	if n, err := fmt.Sscanf(string(b), "MemTotal: %d kB", &kib); n != 1 || err != nil {
		return math.MaxInt64
	}
	return kib << 10
}

// groupMemory is the most memory that the control group of this process, and those above it, allow
// it, in bytes; math.MaxInt64: there is no limit, or it cannot be known. See cgroups(7).
func groupMemory(root fs.FS) int64 {
	least := int64(math.MaxInt64)
	f, err := root.Open("proc/self/cgroup")
	if err != nil {
		return least
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); { // as 0::/system.slice/x.service, or 9:memory:/x of version 1
		parts := strings.SplitN(lines.Text(), ":", 3)
		if len(parts) < 3 {
			continue
		}
		mount, name := "sys/fs/cgroup", "memory.max"
		if parts[1] == "memory" {
			mount, name = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		} else if parts[1] != "" {
			continue
		}
		for dir := path.Join("/", parts[2]); ; dir = path.Dir(dir) {
			if b, err := fs.ReadFile(root, path.Join(mount, dir, name)); err == nil {
				if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil { // else it is "max"
					least = min(least, n)
				}
			}
			if dir == "/" {
				break
			}
		}
	}
	return least
}
