// Command durable appends records of 128 bytes to our log, each acknowledged after its fdatasync, as a contestant.
//
//	durable std|uring|linked PRODUCERS SECONDS DIR
//
// It prints "ops N".
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/seglog"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "durable:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 4 {
		return errors.New("want std|uring|linked PRODUCERS SECONDS DIR")
	}
	producers, err1 := strconv.Atoi(args[1])
	seconds, err2 := strconv.ParseFloat(args[2], 64)
	dir, err3 := os.MkdirTemp(args[3], "durable-")
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	backend := asyncfile.Uring
	if args[0] == "std" {
		backend = asyncfile.Std
	}
	fs, err := seglog.DirWith(dir, func(path string, create bool) (seglog.File, error) {
		return asyncfile.Open(path, asyncfile.Config{Backend: backend, Write: true, Create: create})
	})
	if err != nil {
		return err
	}
	log, err := seglog.Open(seglog.Config{FS: fs, Sync: seglog.SyncAlways, Chain: args[0] == "linked"})
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if spare, _ := filepath.Glob(filepath.Join(dir, "*.spare")); len(spare) > 0 { // a start is not what is measured
			break
		}
		time.Sleep(time.Millisecond)
	}
	var n atomic.Uint64
	errs := make([]error, producers)
	var all sync.WaitGroup
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	for p := range producers {
		all.Go(func() {
			data := make([]byte, 128)
			for i := 0; errs[p] == nil && (i%8 != 0 || time.Now().Before(end)); i++ {
				_, errs[p] = log.Append(0, 1, data)
				n.Add(1)
			}
		})
	}
	all.Wait()
	fmt.Println("ops", n.Load())
	return errors.Join(errors.Join(errs...), log.Close())
}
