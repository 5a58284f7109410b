package memfrag

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// The trial of transparent huge pages: so many, where so many times as much memory is free.
const (
	asked = 8
	spare = 4
)

// blocksEvery is how often blocks are counted by what they are for, at most. The kernel counts free
// blocks for that file, too, one after the other, under its lock and with interrupts off: tens of
// milliseconds on a machine whose memory is in pieces, in which a real-time thread may wait.
const blocksEvery = 5 * time.Minute

// defaultHuge is the size of a huge page where the kernel does not say it.
const defaultHuge = 2 << 20

// watcher looks at the machine and at a process.
type watcher struct {
	root   fs.FS  // of the kernel's files
	pid    int    // 0: no process
	born   string // when it began; "": not known
	page   uint64
	huge   uint64
	trials bool
	blocks time.Time // when they were counted last

	collapse func(size, n int) (int, error)
	pooled   func(size uint64, n int) error
	missing  map[string]string // what cannot be looked at, and why
}

func newWatcher(pid int, trials bool) *watcher {
	w := &watcher{
		root: os.DirFS("/"), pid: pid, page: uint64(os.Getpagesize()), huge: defaultHuge, trials: trials,
		collapse: sys.CollapseHuge, pooled: sys.TryHugePagesOf, missing: map[string]string{},
	}
	if n, err := number(w.root, "sys/kernel/mm/transparent_hugepage/hpage_pmd_size"); err == nil && n >= w.page {
		w.huge = n
	}
	return w
}

// look takes a sample. An error is that the process has ended, or may not be looked at, or that
// there is no /proc/buddyinfo.
func (w *watcher) look(now time.Time) (Sample, error) {
	s := Sample{At: now.UnixMilli()}
	f, err := w.root.Open("proc/buddyinfo")
	if err != nil {
		return s, err
	}
	s.Free, s.FreeHuge, err = readBuddies(f, w.page, w.huge)
	_ = f.Close()
	if err != nil {
		return s, err
	}
	if now.Sub(w.blocks) >= blocksEvery {
		s.Blocks, w.blocks = w.count(), now
	}
	if w.trials {
		s.Trials = w.try(s.FreeHuge)
	}
	if w.pid != 0 {
		p, err := w.process()
		if err != nil {
			return s, err
		}
		s.Process = &p
	}
	return s, nil
}

// count counts blocks by what they are for; nil: that may not be read.
func (w *watcher) count() map[string]int {
	f, err := w.root.Open("proc/pagetypeinfo")
	if err != nil {
		w.missing["blocks by type"] = fmt.Sprintf("%v; run as root", err)
		return nil
	}
	defer f.Close()
	return readBlocks(f)
}

// try asks for huge pages. Of a pool one is asked for, and the kernel's count believed then: to
// take all would be to take them from others.
func (w *watcher) try(free uint64) (all []Trial) {
	for _, p := range pools(w.root) {
		t := Trial{By: "hugetlb", Size: p.size, Got: int(p.free), Most: int(p.total)}
		if p.free > 0 && w.pooled(p.size, 1) != nil {
			t.Got = 0
		}
		all = append(all, t)
	}
	if len(all) > 0 {
		return all
	}
	if free < spare*asked*w.huge {
		w.missing["trial"] = fmt.Sprintf("less than %d MiB are free in blocks of a huge page: none is taken from whoever needs them", spare*asked*w.huge>>20)
		return nil
	}
	got, err := w.collapse(int(w.huge), asked)
	if err != nil {
		w.missing["trial"] = fmt.Sprintf("%v: no pool of huge pages is reserved, and transparent ones cannot be asked for, which Linux 6.1 has", err)
		return nil
	}
	return []Trial{{By: "thp", Size: w.huge, Got: got, Most: asked}}
}

// process looks at the process.
func (w *watcher) process() (Process, error) {
	dir := path.Join("proc", strconv.Itoa(w.pid))
	f, err := w.root.Open(path.Join(dir, "smaps_rollup"))
	if errors.Is(err, fs.ErrNotExist) { // before Linux 4.14
		f, err = w.root.Open(path.Join(dir, "smaps"))
	}
	var p Process
	if err == nil {
		p, err = readSmaps(f)
		_ = f.Close()
	}
	now, bornErr := born(w.root, w.pid)
	switch {
	case bornErr != nil, w.born != "" && now != w.born: // another one has its number
		return p, errEnded
	case errors.Is(err, fs.ErrPermission):
		return p, fmt.Errorf("%w; run as root, or as the user of process %d", err, w.pid)
	case err != nil || p.RSS == 0: // what has ended has no memory
		return p, errEnded
	}
	return p, nil
}

// errEnded is the end of the process that is followed.
var errEnded = errors.New("the process has ended")

// born is when a process began, in ticks since the boot: with its number it names the process.
func born(root fs.FS, pid int) (string, error) {
	b, err := fs.ReadFile(root, path.Join("proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", fmt.Errorf("there is no process %d", pid)
	}
	return startOf(string(b))
}
