package main

import (
	"io"
	"log/slog"
	"math"
	"os"
	"regexp"
	"runtime/debug"
	"testing"
	"testing/fstest"

	"github.com/tallywheel/tallywheel/config"
)

func TestGroupMemory(t *testing.T) {
	const none = int64(math.MaxInt64)
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	for name, c := range map[string]struct {
		files fstest.MapFS
		want  int64
	}{
		"no groups": {nil, none},
		"no limit": {
			fstest.MapFS{"proc/self/cgroup": file("0::/a\n"), "sys/fs/cgroup/a/memory.max": file("max\n")},
			none,
		},
		"its own": {fstest.MapFS{
			"proc/self/cgroup":             file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max": file("1000\n"),
		}, 1000},
		"one above": {fstest.MapFS{
			"proc/self/cgroup": file("0::/a/b\n"), "sys/fs/cgroup/a/memory.max": file("900\n"),
			"sys/fs/cgroup/a/b/memory.max": file("1000\n"),
		}, 900},
		"a container": {
			fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("800\n")},
			800,
		},
		"version 1": {fstest.MapFS{
			"proc/self/cgroup": file("4:cpu:/x\n9:memory:/m\n"),
			"sys/fs/cgroup/memory/m/memory.limit_in_bytes": file("700\n"),
		}, 700},
	} {
		if got := groupMemory(c.files); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// The limit grows with what is configured, and stays below that of the group.
func TestMemoryFor(t *testing.T) {
	c := config.Config{Sources: []config.Source{{}, {}}}.WithDefaults()
	small := memoryFor(c, fstest.MapFS{})
	c.Sources[0].Buffer = 64 << 20
	large := memoryFor(c, fstest.MapFS{})
	if small < 256<<20 || large < small+(64<<20) {
		t.Errorf("limits of %d and %d bytes", small, large)
	}
	c.API.Listen = "off"
	if off := memoryFor(c, fstest.MapFS{}); off >= large {
		t.Errorf("without the API it is %d, with it %d", off, large)
	}
	tight := fstest.MapFS{
		"proc/self/cgroup":         {Data: []byte("0::/\n")},
		"sys/fs/cgroup/memory.max": {Data: []byte("100000000")},
	}
	if got := memoryFor(c, tight); got < 89_000_000 || got > 90_000_000 {
		t.Errorf("in a group of 100 MB the limit is %d", got)
	}
	board := fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal:        500000 kB\nMemFree: 1 kB\n")}}
	c.API.Listen = "127.0.0.1:7411"
	if got := memoryFor(c, board); got < 459_000_000 || got > 461_000_000 {
		t.Errorf("on a machine of 512 MB the limit is %d", got)
	}
}

// A recorder has a soft limit, which the user may set, and its unit a hard one that is enough for
// many sources.
func TestMemoryIsBounded(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(before)
	c := config.Config{Sources: make([]config.Source, 64)}.WithDefaults()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	t.Setenv("GOMEMLIMIT", "100MiB")
	limitMemory(c, log)
	if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 {
		t.Errorf("where GOMEMLIMIT is set, the limit becomes %d", got)
	}
	t.Setenv("GOMEMLIMIT", "")
	limitMemory(c, log)
	if got := debug.SetMemoryLimit(-1); got != memoryFor(c, os.DirFS("/")) {
		t.Errorf("the limit is %d", got)
	}
	unit, err := os.ReadFile("../../deploy/tallywheel.service")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^MemoryMax=1G$`).Match(unit) {
		t.Error("the unit has no MemoryMax of 1 GiB")
	}
	if need := memoryFor(c, fstest.MapFS{}) / 2; need > 1<<30/10*9 {
		t.Errorf("64 sources need %d bytes, more than the unit allows", need)
	}
}
