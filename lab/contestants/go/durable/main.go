// Command durable appends records of 128 bytes to other people's logs, each acknowledged after its sync.
//
//	durable pebble|etcd/wal|etcd/wal+group PRODUCERS SECONDS DIR
//
// It prints "ops N".
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "durable:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 4 {
		return errors.New("want pebble|etcd/wal|etcd/wal+group PRODUCERS SECONDS DIR")
	}
	producers, err1 := strconv.Atoi(args[1])
	seconds, err2 := strconv.ParseFloat(args[2], 64)
	dir, err3 := os.MkdirTemp(args[3], "durable-")
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	appendOne, err := open(args[0], dir)
	if err != nil {
		return err
	}
	var n atomic.Uint64
	errs := make([]error, producers)
	var all sync.WaitGroup
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	for p := range producers {
		all.Go(func() {
			data := make([]byte, 128)
			for i := 0; errs[p] == nil && (i%8 != 0 || time.Now().Before(end)); i++ {
				errs[p] = appendOne(data)
				n.Add(1)
			}
		})
	}
	all.Wait()
	fmt.Println("ops", n.Load())
	return errors.Join(errs...)
}

type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

func open(name, dir string) (func([]byte) error, error) {
	if name == "pebble" { // its write-ahead log alone: the cheapest durable record that it has
		db, err := pebble.Open(dir, &pebble.Options{Logger: silent{}})
		if err != nil {
			return nil, err
		}
		return func(b []byte) error { return db.LogData(b, pebble.Sync) }, nil
	}
	w, err := wal.Create(zap.NewNop(), dir+"/wal", nil)
	if err != nil {
		return nil, err
	}
	index, term := uint64(0), uint64(1)
	save := func(records [][]byte) error {
		entries := make([]*raftpb.Entry, len(records))
		for i, b := range records {
			index++
			at := index
			entries[i] = &raftpb.Entry{Index: &at, Term: &term, Data: b}
		}
		return w.Save(&raftpb.HardState{}, entries)
	}
	switch name {
	case "etcd/wal":
		var mu sync.Mutex
		return func(b []byte) error {
			mu.Lock()
			defer mu.Unlock()
			return save([][]byte{b})
		}, nil
	case "etcd/wal+group":
		return grouped(save), nil
	}
	return nil, fmt.Errorf("%q is none of the contestants", name)
}

// grouped gathers what comes while a save is under way into the next one.
func grouped(save func([][]byte) error) func([]byte) error {
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
