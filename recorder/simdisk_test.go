package recorder

import (
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/internal/fault"
	"github.com/tallywheel/tallywheel/seglog"
)

// simDisk is the log's folder in a scenario: package fault, which may also be slow.
type simDisk struct {
	*fault.Dir
	t *diskTrouble
}

// diskTrouble is what the disk is like at the moment.
type diskTrouble struct {
	mu     sync.Mutex
	delay  time.Duration // of each write and sync of a segment
	ops    int           // operations so far
	killAt int           // the operation before which the process is killed; 0: none
	kill   func()
	files  int // that are open
}

func (t *diskTrouble) opened(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.files += n
}

// before is called before each operation that changes the disk.
func (t *diskTrouble) before() {
	t.mu.Lock()
	t.ops++
	kill := t.kill
	if t.killAt == 0 || t.ops < t.killAt {
		kill = nil
	} else {
		t.killAt = 0
	}
	t.mu.Unlock()
	if kill != nil {
		kill()
	}
}

func (t *diskTrouble) slow(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.delay = d
}

func (t *diskTrouble) rest() {
	t.mu.Lock()
	d := t.delay
	t.mu.Unlock()
	if d > 0 {
		time.Sleep(d)
	}
}

func (d simDisk) Create(name string) (seglog.File, error) {
	d.t.before()
	f, err := d.Dir.Create(name)
	if err != nil {
		return nil, err
	}
	d.t.opened(1)
	return simFile{f, name, d.t}, nil
}

func (d simDisk) Open(name string) (seglog.File, error) {
	f, err := d.Dir.Open(name)
	if err != nil {
		return nil, err
	}
	d.t.opened(1)
	return simFile{f, name, d.t}, nil
}

func (d simDisk) Rename(from, to string) error { d.t.before(); return d.Dir.Rename(from, to) }
func (d simDisk) Remove(name string) error     { d.t.before(); return d.Dir.Remove(name) }
func (d simDisk) Sync() error                  { d.t.before(); return d.Dir.Sync() }

type simFile struct {
	*fault.File
	name string
	t    *diskTrouble
}

func (f simFile) Close() error { f.t.opened(-1); return f.File.Close() }

func (f simFile) WriteAt(b []byte, off int64) (int, error) {
	f.t.before()
	if !strings.HasSuffix(f.name, ".part") {
		f.t.rest()
	}
	return f.File.WriteAt(b, off)
}

func (f simFile) Sync() error {
	f.t.before()
	if !strings.HasSuffix(f.name, ".part") {
		f.t.rest()
	}
	return f.File.Sync()
}

// failing makes operations fail: those in ops, each with the given odds of ten.
func failing(rng *rand.Rand, err error, odds int, ops ...fault.Op) func(fault.Op, string) (int, error) {
	return func(op fault.Op, _ string) (int, error) { // called with the directory locked
		for _, o := range ops {
			if o == op && rng.IntN(10) < odds {
				return rng.IntN(64), err
			}
		}
		return 0, nil
	}
}
