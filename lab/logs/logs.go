// Package logs is our log as a contestant, by the ways in which it writes.
package logs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/seglog"
)

// Engine is how a log writes.
type Engine struct {
	backend asyncfile.Backend
	chain   bool
	linger  bool // a batch is left open for lingerRecords, or for lingerTime
}

// A batch of one that lingers, as the article has it.
const (
	lingerRecords = 64
	lingerTime    = time.Millisecond
)

// The engines.
var (
	Std    = Engine{backend: asyncfile.Std}
	Uring  = Engine{backend: asyncfile.Uring}
	Linked = Engine{backend: asyncfile.Uring, chain: true} // an operation for each record
	// 64 records or 1 ms a batch, by one write or by an operation for each record
	Lingering       = Engine{backend: asyncfile.Std, linger: true}
	LingeringLinked = Engine{backend: asyncfile.Uring, chain: true, linger: true}
)

// AloneBytes is what a log writes for a record of 128 bytes that is committed alone: the record's
// frame, 160, and the commit's, 64. So who writes such blocks does the disk's part of it.
const AloneBytes = 224

// open makes a log in a new folder below the parameter dir. What becomes of its chains is in
// chains.
func (e Engine) open(t *contestant.Turn, cfg seglog.Config, chains *asyncfile.ChainStats,
) (log *seglog.Log, dir string, err error) {
	if dir, err = os.MkdirTemp(t.Text("dir"), "log-"); err != nil {
		return nil, "", err
	}
	fs, err := seglog.DirWith(dir, func(path string, create bool) (seglog.File, error) {
		return asyncfile.Open(path, asyncfile.Config{
			Backend: e.backend, Write: true, Create: create, Chains: chains,
		})
	})
	if err != nil {
		return nil, dir, err
	}
	cfg.FS, cfg.Chain, cfg.MinFree = fs, e.chain, -1
	log, err = seglog.Open(cfg)
	if err != nil {
		return nil, dir, err
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if spare, _ := filepath.Glob(filepath.Join(dir, "*.spare")); len(spare) > 0 { // a start is not what is measured
			break
		}
	}
	return log, dir, nil
}

// Durable appends records that are acknowledged after their fdatasync.
func (e Engine) Durable(t *contestant.Turn) error {
	if !e.linger {
		return e.appendTo(t, seglog.Config{Sync: seglog.SyncAlways}, func(uint64) error { return nil })
	}
	var d durable
	d.more.L = &d.mu
	return e.appendTo(t, seglog.Config{
		Sync: seglog.SyncBatch, BatchRecords: lingerRecords, BatchDelay: lingerTime, OnCommit: d.commit,
	}, d.await)
}

// Append appends records that the kernel writes back when it likes.
func (e Engine) Append(t *contestant.Turn) error {
	cfg := seglog.Config{Sync: seglog.SyncNever, BufferBytes: contestant.LogBuffer}
	return e.appendTo(t, cfg, func(uint64) error { return nil })
}

// durable is up to where the records of a log are, and the error of the commit that failed. Who
// appends waits for it; the log's commits move it on.
type durable struct {
	mu   sync.Mutex
	more sync.Cond
	upTo uint64
	err  error
}

func (d *durable) commit(c seglog.Commit) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.upTo, d.err = max(d.upTo, c.Durable), errors.Join(d.err, c.Err)
	d.more.Broadcast()
}

func (d *durable) await(seq uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.upTo < seq && d.err == nil {
		d.more.Wait()
	}
	return d.err
}

func (e Engine) appendTo(t *contestant.Turn, cfg seglog.Config, acknowledged func(seq uint64) error) error {
	var chains asyncfile.ChainStats
	log, dir, err := e.open(t, cfg, &chains)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	err = contestant.Appenders(t, func(record []byte) error {
		seq, err := log.Append(0, 1, record)
		if err != nil {
			return err
		}
		return acknowledged(seq)
	}, func() []contestant.Value {
		if !e.chain {
			return nil
		}
		c := chains.Counts()
		return []contestant.Value{
			{Metric: "chains_failed", V: float64(c.Chains - c.Whole)},
			{Metric: "chains_whole_percent", V: 100 * c.SuccessRate()},
		}
	})
	if e.chain {
		err = tell(t, chains.Counts(), err)
	}
	return errors.Join(err, log.Close(), os.RemoveAll(dir))
}

// tell says what became of the chains of a turn, with each part that failed: beside its figures, or
// in the error of the append that failed.
func tell(t *contestant.Turn, c asyncfile.ChainCounts, failed error) error {
	if failed != nil {
		return fmt.Errorf("%w (chains: %v)", failed, c)
	}
	return t.Found("chains: %v", c)
}
