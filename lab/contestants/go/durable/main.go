// Command durable appends records to other people's logs, each acknowledged after its sync.
package main

import (
	"fmt"
	"os"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/hashicorp/raft"
	raftwal "github.com/hashicorp/raft-wal"
	"github.com/tallywheel/tallywheel/lab/contestant"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

func main() { contestant.Main(run) }

func run(t *contestant.Turn) error {
	dir, err := os.MkdirTemp(t.Text("dir"), "durable-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	makers := map[string]func(string) (func([]byte) error, error){
		"pebble": openPebble, "etcd/wal": alone(openEtcd), "etcd/wal+group": inGroups(openEtcd),
		"raft-wal": alone(openRaft), "raft-wal+group": inGroups(openRaft), "bbolt": openBolt,
		"jetstream": openJetStream,
	}
	open, ok := makers[t.Name]
	if !ok {
		return fmt.Errorf("no contestant %q", t.Name)
	}
	appendOne, err := open(dir)
	if err != nil {
		return err
	}
	return contestant.Appenders(t, appendOne)
}

type silent struct{}

func (silent) Infof(string, ...any)              {}
func (silent) Errorf(string, ...any)             {}
func (silent) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// openPebble is its write-ahead log alone: the cheapest durable record that it has.
func openPebble(dir string) (func([]byte) error, error) {
	db, err := pebble.Open(dir, &pebble.Options{Logger: silent{}})
	if err != nil {
		return nil, err
	}
	return func(b []byte) error { return db.LogData(b, pebble.Sync) }, nil
}

// saver makes several records durable at once.
type saver func(records [][]byte) error

func openEtcd(dir string) (saver, error) {
	w, err := wal.Create(zap.NewNop(), dir+"/wal", nil)
	if err != nil {
		return nil, err
	}
	index, term := uint64(0), uint64(1)
	return func(records [][]byte) error {
		entries := make([]*raftpb.Entry, len(records))
		for i, b := range records {
			index++
			at := index
			entries[i] = &raftpb.Entry{Index: &at, Term: &term, Data: b}
		}
		return w.Save(&raftpb.HardState{}, entries)
	}, nil
}

func openRaft(dir string) (saver, error) {
	w, err := raftwal.Open(dir)
	if err != nil {
		return nil, err
	}
	index := uint64(0)
	return func(records [][]byte) error {
		logs := make([]*raft.Log, len(records))
		for i, b := range records {
			index++
			logs[i] = &raft.Log{Index: index, Data: b}
		}
		return w.StoreLogs(logs)
	}, nil
}

func openBolt(dir string) (func([]byte) error, error) {
	db, err := bolt.Open(dir+"/db", 0o600, nil)
	if err != nil {
		return nil, err
	}
	name := []byte("log")
	if err := db.Update(func(tx *bolt.Tx) error { _, err := tx.CreateBucket(name); return err }); err != nil {
		return nil, err
	}
	return func(b []byte) error {
		return db.Batch(func(tx *bolt.Tx) error {
			bucket := tx.Bucket(name)
			seq, err := bucket.NextSequence()
			if err != nil {
				return err
			}
			return bucket.Put([]byte{
				byte(seq >> 56), byte(seq >> 48), byte(seq >> 40), byte(seq >> 32),
				byte(seq >> 24), byte(seq >> 16), byte(seq >> 8), byte(seq),
			}, b)
		})
	}, nil
}

// alone saves one record at a time, under a lock.
func alone(open func(string) (saver, error)) func(string) (func([]byte) error, error) {
	return func(dir string) (func([]byte) error, error) {
		save, err := open(dir)
		if err != nil {
			return nil, err
		}
		var mu sync.Mutex
		return func(b []byte) error {
			mu.Lock()
			defer mu.Unlock()
			return save([][]byte{b})
		}, nil
	}
}

// inGroups gathers what comes while a save is under way into the next one.
func inGroups(open func(string) (saver, error)) func(string) (func([]byte) error, error) {
	return func(dir string) (func([]byte) error, error) {
		save, err := open(dir)
		if err != nil {
			return nil, err
		}
		return grouped(save), nil
	}
}

func grouped(save saver) func([]byte) error {
	type record struct {
		data []byte
		done chan error
	}
	queue := make(chan record, 1024)
	go func() {
		var batch []record
		var data [][]byte
		for first := range queue {
			batch, data = append(batch[:0], first), append(data[:0], first.data)
			for more := true; more && len(batch) < 1024; {
				select {
				case r := <-queue:
					batch, data = append(batch, r), append(data, r.data)
				default:
					more = false
				}
			}
			err := save(data)
			for _, r := range batch {
				r.done <- err
			}
		}
	}()
	pool := sync.Pool{New: func() any { return make(chan error, 1) }}
	return func(b []byte) error {
		done := pool.Get().(chan error)
		queue <- record{b, done}
		err := <-done
		pool.Put(done)
		return err
	}
}
