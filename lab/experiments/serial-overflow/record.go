package serialoverflow

import (
	"errors"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/recorder"
	"github.com/tallywheel/tallywheel/seglog"
)

const (
	buffer     = 64 << 10  // bytes of a source that may wait for the log: the least
	spillLeast = 256 << 10 // … with a file to run over into

	// The reader's process computes for so much of each period, on every CPU.
	loadPeriod = 10 * time.Millisecond
	loadShare  = 70 // percent

	// The disk stands still from then until then, in tenths of a turn.
	stillFrom, stillUntil = 4, 8
)

// record is a recorder with a policy. It reports the frames that its sheet says are durable, and
// those that it says were dropped.
func record(policy string) contestant.Work {
	return func(t *contestant.Turn) error {
		dir, err := os.MkdirTemp(t.Text("dir"), "overflow-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		files, err := seglog.Dir(dir)
		if err != nil {
			return err
		}
		disk := &slowDisk{FS: files}
		source := config.Source{
			ID: "line", Serial: &config.Serial{Port: t.Paths()[0]}, Frame: config.Frame{Kind: "tally128"},
			Overflow: policy, Buffer: buffer,
		}
		if policy == config.OverflowSpill {
			source.Buffer = spillLeast
		}
		g, err := recorder.StartOn(config.Config{Log: config.Log{Dir: dir}, Sources: []config.Source{source}}, disk,
			slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		time.Sleep(200 * time.Millisecond) // its start, and its first segment made ready, are not what is measured
		stop := compute()
		defer stop()
		if _, err := t.Ready(); err != nil {
			return err
		}
		if t.Text("disk") == "stands-still" {
			go disk.stand(t.Seconds()*stillFrom/10, t.Seconds()*(stillUntil-stillFrom)/10)
		}
		t.End()
		took := t.Elapsed()
		sheet, err := g.Stop("the turn ended")
		if err != nil {
			return err
		}
		if !sheet.Balanced {
			return errors.New("its books do not balance")
		}
		f := sheet.Ports[0].Frames
		dropped := uint64(0)
		for _, n := range f.Dropped {
			dropped += n
		}
		return t.Result(took, f.Durable, contestant.Value{Metric: "lost_by_policy_frames", V: float64(dropped)},
			contestant.Value{Metric: "MB_per_s", V: float64(f.Durable) * tally128.Size / 1e6 / took.Seconds()})
	}
}

// compute keeps each CPU busy for loadShare of the time, until stop.
func compute() (stop func()) {
	var over atomic.Bool
	var spun atomic.Uint64 // so that it is computed
	var all sync.WaitGroup
	for range runtime.NumCPU() {
		all.Go(func() {
			for period := time.Now(); !over.Load(); period = period.Add(loadPeriod) {
				for time.Since(period) < loadPeriod*loadShare/100 {
					spun.Store(contestant.Spin(1000))
				}
				time.Sleep(time.Until(period.Add(loadPeriod)))
			}
		})
	}
	return func() { over.Store(true); all.Wait() }
}

// slowDisk is a log's folder whose files can be neither written nor synced while still is locked.
type slowDisk struct {
	seglog.FS
	still sync.RWMutex
}

// stand has the disk stand still for a while, after a while.
func (d *slowDisk) stand(after, length time.Duration) {
	time.Sleep(after)
	d.still.Lock()
	time.Sleep(length)
	d.still.Unlock()
}

func (d *slowDisk) Create(name string) (seglog.File, error) { return d.file(d.FS.Create(name)) }
func (d *slowDisk) Open(name string) (seglog.File, error)   { return d.file(d.FS.Open(name)) }

func (d *slowDisk) file(f seglog.File, err error) (seglog.File, error) {
	if err != nil {
		return nil, err
	}
	return slowFile{f, d}, nil
}

type slowFile struct {
	seglog.File
	disk *slowDisk
}

// WriteAt and Sync wait as long as the disk stands still.
func (f slowFile) WriteAt(b []byte, off int64) (int, error) {
	f.disk.still.RLock()
	defer f.disk.still.RUnlock()
	return f.File.WriteAt(b, off)
}

func (f slowFile) Sync() error {
	f.disk.still.RLock()
	defer f.disk.still.RUnlock()
	return f.File.Sync()
}
