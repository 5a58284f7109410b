// Command log-durable asks: how many records of 128 bytes a second can be acknowledged after an fdatasync? Beside our log, with
// each of its file engines, stand pebble and etcd's write-ahead log, alone and with a group commit around it, and as the bar
// fio, which writes and syncs one record at a time on a file that is filled with zeros.
//
//	go run ./lab/experiments/log-durable -producers 64 -for 2s -rounds 5
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tallywheel/tallywheel/lab/turns"
)

func main() {
	dir := flag.String("dir", ".", "where to write: on the disk that is asked about")
	producers := flag.Int("producers", 64, "goroutines that append")
	length := flag.Duration("for", 2*time.Second, "length of a round")
	rounds := flag.Int("rounds", 5, "rounds")
	flag.Parse()
	if err := run(*dir, *producers, *rounds, *length); err != nil {
		fmt.Fprintln(os.Stderr, "log-durable:", err)
		os.Exit(1)
	}
}

func run(dir string, producers, rounds int, length time.Duration) error {
	if err := turns.Lock(); err != nil {
		return err
	}
	bin, err := os.MkdirTemp("", "tallywheel-lab-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	work, err := os.MkdirTemp(dir, "tallywheel-log-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if work, err = filepath.Abs(work); err != nil {
		return err
	}
	all := contestants(bin, work, producers, length)
	r, err := turns.Run(all, rounds, length)
	if err != nil {
		return err
	}
	fmt.Printf("records of 128 bytes, each acknowledged after its sync, %d producers\n", producers)
	fmt.Printf("%-24s %28s %14s %26s %24s\n", "contestant", "records/s median (range)", "CPU µs/record", "÷ (fio × producers)", "÷ tallywheel/seglog")
	for _, c := range all {
		fmt.Printf("%-24s %28s %14.2f %26s %24s\n", c.Name, r.Spread(c.Name, turns.Rate), turns.Median(r.Column(c.Name, turns.CPU)),
			r.Ratio(c.Name, "fio/fdatasync", turns.Rate, 1/float64(producers)), r.Ratio(c.Name, "tallywheel/seglog", turns.Rate, 1))
	}
	return nil
}

func contestants(bin, work string, producers int, length time.Duration) (all []turns.Contestant) {
	seconds, n := strconv.FormatFloat(length.Seconds(), 'f', -1, 64), strconv.Itoa(producers)
	if _, err := exec.LookPath("fio"); err != nil {
		fmt.Fprintln(os.Stderr, "not run: fio/fdatasync:", err)
	} else {
		all = append(all, turns.Contestant{
			Name: "fio/fdatasync",
			Args: []string{
				"fio", "--name=w", "--filename=" + filepath.Join(work, "fio"), "--rw=write", "--bs=224", "--size=64m", "--ioengine=psync",
				"--fdatasync=1", "--overwrite=1", "--time_based", "--runtime=" + seconds, "--output-format=json",
			},
			Ops: turns.FIO(length),
		})
	}
	if ours := bin + "/ours"; turns.Build("tallywheel/seglog", ".", "go", "build", "-o", ours, "./lab/contestants/durable") {
		for _, c := range [][2]string{{"tallywheel/seglog", "std"}, {"tallywheel/seglog uring", "uring"}, {"tallywheel/seglog linked", "linked"}} {
			all = append(all, turns.Contestant{Name: c[0], Args: []string{ours, c[1], n, seconds, work}})
		}
	}
	if peers := bin + "/peers"; turns.Build("pebble, etcd", "lab/contestants/go", "go", "build", "-o", peers, "./durable") {
		for _, name := range []string{"pebble", "etcd/wal", "etcd/wal+group"} {
			all = append(all, turns.Contestant{Name: name, Args: []string{peers, name, n, seconds, work}})
		}
	}
	return all
}
