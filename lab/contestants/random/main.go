// Command random reads blocks of 4 KiB at random from a file, past the page cache, as a contestant: by our batch on a ring, or by
// os.File and goroutines.
//
//	random uring|os PATH DEPTH BATCH SECONDS
//
// It prints "ops N".
package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallywheel/tallywheel/asyncfile"
)

const block = 4096

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "random:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 5 {
		return errors.New("want uring|os PATH DEPTH BATCH SECONDS")
	}
	depth, err1 := strconv.Atoi(args[2])
	batch, err2 := strconv.Atoi(args[3])
	seconds, err3 := strconv.ParseFloat(args[4], 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	backend := asyncfile.Uring
	if args[0] == "os" {
		backend = asyncfile.Std
	}
	f, err := asyncfile.Open(args[1], asyncfile.Config{Backend: backend, Direct: true, Depth: depth})
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	length := time.Duration(seconds * float64(time.Second))
	var ops uint64
	if args[0] == "os" {
		ops, err = goroutines(f, size/block, depth, length)
	} else {
		ops, err = batched(f, size/block, depth, batch, length)
	}
	fmt.Println("ops", ops)
	return err
}

// batched keeps depth reads in flight from one thread and reaps them batch at a time. A locked ring pays for batches only.
func batched(f asyncfile.File, blocks int64, depth, batch int, length time.Duration) (uint64, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b, err := asyncfile.NewBatch(f, asyncfile.BatchConfig{Depth: depth, Locked: batch > 1})
	if err != nil {
		return 0, err
	}
	rng := rand.New(rand.NewPCG(1, 1))
	ops := make([]asyncfile.Op, depth)
	for i := range ops {
		ops[i].Buf = asyncfile.Aligned(block)
		ops[i].Off = rng.Int64N(blocks) * block
	}
	if _, err := b.Submit(ops); err != nil {
		return 0, err
	}
	n := uint64(0)
	done := make([]*asyncfile.Op, 0, depth)
	for end := time.Now().Add(length); time.Now().Before(end); {
		if done, err = b.Reap(done[:0], batch); err != nil {
			return n, err
		}
		for i := 0; i < len(done); i++ {
			op := done[i]
			if op.Err != nil {
				return n, op.Err
			}
			op.Off = rng.Int64N(blocks) * block
			if err := b.SubmitOne(op); err != nil {
				return n, err
			}
			if n++; n%uint64(batch) == 0 && i+1 < len(done) { // the disk should not wait for the rest of the list
				if done, err = b.Reap(done, 0); err != nil {
					return n, err
				}
			}
		}
	}
	return n, b.Close()
}

// goroutines has depth of them, each reading one block at a time.
func goroutines(f asyncfile.File, blocks int64, depth int, length time.Duration) (uint64, error) {
	var n atomic.Uint64
	errs := make([]error, depth)
	var all sync.WaitGroup
	end := time.Now().Add(length)
	for g := range depth {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			buf := asyncfile.Aligned(block)
			for errs[g] == nil && time.Now().Before(end) {
				_, errs[g] = f.ReadAt(buf, rng.Int64N(blocks)*block)
				n.Add(1)
			}
		})
	}
	all.Wait()
	return n.Load(), errors.Join(errs...)
}
