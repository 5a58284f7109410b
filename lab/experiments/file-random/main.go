// Command file-random asks: how many random reads of 4 KiB past the page cache can one thread keep going, and what do they
// cost? All contestants take turns in each round, with the same depth and the same batch.
//
//	go run ./lab/experiments/file-random -depth 64 -batch 16 -for 3s -rounds 5
//	go run ./lab/experiments/file-random -depth 8 -batch 1
//
// It makes a file of -size bytes in -dir. It needs a C compiler with liburing for c/liburing, and fio.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/lab/turns"
)

type options struct {
	dir          string
	size         int64
	depth, batch int
	length       time.Duration
	rounds       int
}

func main() {
	var o options
	flag.StringVar(&o.dir, "dir", ".", "where to make the file: on the disk that is asked about")
	flag.Int64Var(&o.size, "size", 1<<30, "bytes of the file")
	flag.IntVar(&o.depth, "depth", 64, "reads in flight")
	flag.IntVar(&o.batch, "batch", 16, "reads submitted and reaped at a time")
	flag.DurationVar(&o.length, "for", 3*time.Second, "length of a round")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "file-random:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	if err := turns.Lock(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "tallywheel-lab-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(o.dir, "tallywheel-random.tmp")
	if err := fill(file, o.size); err != nil {
		return err
	}
	defer os.Remove(file)
	all := contestants(dir, file, o)
	r, err := turns.Run(all, o.rounds, o.length)
	if err != nil {
		return err
	}
	fmt.Printf("random reads of 4 KiB, O_DIRECT, depth %d, batch %d\n", o.depth, o.batch)
	fmt.Printf("%-20s %28s %14s %20s %20s\n", "contestant", "reads/s median (range)", "CPU µs/read", "÷ fio/io_uring", "CPU ÷ c/liburing")
	for _, c := range all {
		fmt.Printf("%-20s %28s %14.2f %20s %20s\n", c.Name, r.Spread(c.Name, turns.Rate), turns.Median(r.Column(c.Name, turns.CPU)),
			r.Ratio(c.Name, "fio/io_uring", turns.Rate, 1), r.Ratio(c.Name, "c/liburing", turns.CPU, 1))
	}
	return nil
}

// fill writes the file whole, so that no read meets a hole.
func fill(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = byte(i * 7)
	}
	for at := int64(0); at < size; at += int64(len(b)) {
		if _, err := f.WriteAt(b, at); err != nil {
			return err
		}
	}
	return errors.Join(f.Sync(), sys.DropCache(f))
}

func contestants(dir, file string, o options) (all []turns.Contestant) {
	seconds := strconv.FormatFloat(o.length.Seconds(), 'f', -1, 64)
	depth, batch := strconv.Itoa(o.depth), strconv.Itoa(o.batch)
	add := func(name string, ops func([]byte) (float64, error), args ...string) {
		all = append(all, turns.Contestant{Name: name, Args: args, Ops: ops})
	}
	if _, err := exec.LookPath("fio"); err != nil {
		fmt.Fprintln(os.Stderr, "not run: fio/io_uring:", err)
	} else {
		add("fio/io_uring", turns.FIO(o.length), "fio", "--name=r", "--filename="+file, "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=io_uring",
			"--iodepth="+depth, "--iodepth_batch_submit="+batch, "--iodepth_batch_complete_min="+batch, "--iodepth_batch_complete_max="+depth,
			"--norandommap", "--randrepeat=0", "--time_based", "--runtime="+seconds, "--output-format=json")
	}
	if c := dir + "/c-liburing"; turns.Build("c/liburing", ".", "cc", "-O2", "-o", c, "lab/contestants/c/uring_random.c", "-luring") {
		add("c/liburing", nil, c, file, depth, batch, seconds)
	}
	if ours := dir + "/random"; turns.Build("tallywheel/uring", ".", "go", "build", "-o", ours, "./lab/contestants/random") {
		add("tallywheel/uring", nil, ours, "uring", file, depth, batch, seconds)
		add("os.File", nil, ours, "os", file, depth, batch, seconds)
	}
	return all
}
