package seglog

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestGather has records that are added while the log gathers in the batch that it takes then, and
// the log say for how long that can be relied on.
func TestGather(t *testing.T) {
	for _, sync := range []SyncPolicy{SyncBatch, SyncInterval, SyncNever} {
		synctest.Test(t, func(t *testing.T) {
			dir, err := Dir(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			var l *Log
			var gathered atomic.Int64
			commits := make(chan Commit, 10)
			l, err = Open(Config{
				FS: dir, Sync: sync, BatchDelay: time.Second,
				Gather: func() {
					if _, err := l.TryAppend(1, 2, []byte("gathered")); err != nil {
						t.Error(err)
					}
					gathered.Add(1)
				},
				OnCommit: func(c Commit) {
					if c.Records > 0 {
						commits <- c
					}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if l.IsOpen() {
				t.Error("a batch without records is open")
			}
			if _, err := l.TryAppend(1, 1, []byte("first")); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if !l.IsOpen() || gathered.Load() != 0 {
				t.Errorf("it does not wait for more: open %v, gathered %d times", l.IsOpen(), gathered.Load())
			}
			if c := <-commits; c.Records != 2 || c.Stored != 2 || gathered.Load() != 1 {
				t.Errorf("sync %d: a commit %+v, gathered %d times: want 2 records, gathered once", sync, c,
					gathered.Load())
			}
			synctest.Wait()
			if l.IsOpen() {
				t.Error("it waits for more though nobody has begun a batch")
			}
		})
	}
}

// TestGatherAlways finds no batch open that is on its way to the disk at once.
func TestGatherAlways(t *testing.T) {
	dir, err := Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l, err := Open(Config{FS: dir, Sync: SyncAlways, Gather: func() { t.Error("it gathers") }})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := l.TryAppend(1, 1, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if l.IsOpen() {
			t.Fatal("a batch is open")
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
