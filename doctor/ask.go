package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/rt"
	"github.com/tallywheel/tallywheel/serial"
	"github.com/tallywheel/tallywheel/uring"
)

// thisMachine asks the kernel that this program runs on.
func thisMachine() *Asker {
	return &Asker{
		Rings: func() (map[string]error, []string) {
			support := uring.Probe()
			features, order := map[string]error{}, []string{string(uring.Rings)}
			features[string(uring.Rings)] = support.Has(uring.Rings)
			if features[string(uring.Rings)] != nil { // the rest says the same
				return features, order
			}
			for _, f := range support.Features() {
				if f != uring.Rings {
					order = append(order, string(f))
					features[string(f)] = support.Has(f)
				}
			}
			return features, order
		},
		Clock: sys.ClockSynchronised,
		FIFO: func(priority int) error {
			return rt.TryScheduling(rt.Scheduling{Policy: rt.FIFO, Priority: priority, ResetOnFork: true})
		},
		Deadline: func() error {
			return rt.TryScheduling(rt.Scheduling{
				Policy: rt.Deadline, Runtime: 10 * time.Microsecond,
				Deadline: time.Millisecond, ResetOnFork: true,
			})
		},
		Lock: rt.TryLockMemory,
		LockAll: func() error {
			err := rt.LockMemory()
			if err == nil {
				err = rt.UnlockMemory()
			}
			return err
		},
		Disk: diskOf, HugePage: sys.TryHugePage, Perf: sys.TryPerf, BPF: sys.TryBPF,
		Files: func() (uint64, uint64, error) {
			l, err := sys.LimitOf(sys.LimitFiles)
			return l.Soft, l.Hard, err
		},
		Ports: func() ([]string, error) {
			ports, err := serial.List()
			var names []string
			for _, p := range ports {
				names = append(names, filepath.Base(p.Path))
			}
			return names, err
		},
	}
}

// diskOf asks the file system of a folder, or of the nearest above it that is there.
func diskOf(dir string) (d Disk, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return d, err
	}
	for {
		if _, err = os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	if d.Bytes, err = sys.FreeBytes(dir); err != nil {
		return d, err
	}
	_, d.Memory = sys.FileSystem(dir)
	d.Files, d.Bounds, err = sys.FreeFiles(dir)
	return d, err
}

func (k Kernel) stat(name string) (fs.FileInfo, error) { return os.Stat(k.path(name)) }

// glob lists the kernel's files that match, by their names from the root.
func (k Kernel) glob(pattern string) (names []string) {
	found, err := filepath.Glob(k.path(pattern))
	if err != nil {
		return nil
	}
	for _, f := range found {
		if rel, err := filepath.Rel(k.path("/"), f); err == nil {
			names = append(names, "/"+rel)
		}
	}
	return names
}
