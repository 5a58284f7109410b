// Command serial is the contestant go.bug.st/serial. serial: a goroutine for each port that reads
// and takes frames; it checks no CRC. timeout: reads of a silent port, each with a time-out of 1 ms.
// list: the ports of this machine.
package main

import (
	"errors"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
	"go.bug.st/serial"
)

func main() { contestant.Main(run) }

func run(t *contestant.Turn) error {
	switch t.Name {
	case "timeout":
		return timeOut(t)
	case "list":
		ports, err := serial.GetPortsList()
		return t.Answer(err != nil, "go.bug.st/serial.GetPortsList lists %d ports, %v", len(ports), err)
	}
	found := make([]contestant.Frames, len(t.Paths()))
	var ports []serial.Port
	var done sync.WaitGroup
	for i, path := range t.Paths() {
		p, err := serial.Open(path, &serial.Mode{BaudRate: 115200})
		if err != nil {
			return err
		}
		ports = append(ports, p)
		done.Go(func() {
			buf, have := make([]byte, 64<<10), 0
			for {
				n, err := p.Read(buf[have : have+4096])
				if err != nil || n == 0 {
					return
				}
				have += n
				have = copy(buf, buf[found[i].Take(buf[:have]):have])
			}
		})
	}
	if _, err := t.Ready(); err != nil {
		return err
	}
	t.End()
	took := t.Elapsed()
	for _, p := range ports {
		if err := p.Close(); err != nil {
			return err
		}
	}
	done.Wait()
	var sum contestant.Frames
	for _, f := range found {
		sum.Add(f)
	}
	mb := float64(sum.N) * 128 / 1e6
	return t.Result(took, sum.N,
		append(sum.Latencies(), contestant.Value{Metric: "MB_per_s", V: mb / took.Seconds()})...)
}

func timeOut(t *contestant.Turn) error {
	p, err := serial.Open(t.Paths()[0], &serial.Mode{BaudRate: 115200})
	if err != nil {
		return err
	}
	if err := p.SetReadTimeout(time.Millisecond); err != nil {
		return err
	}
	until, err := t.Ready()
	if err != nil {
		return err
	}
	b, n, got := make([]byte, 128), uint64(0), 0
	var last error
	for time.Now().Before(until) {
		got, last = p.Read(b)
		n++
	}
	took, err := t.Done()
	if err != nil {
		return err
	}
	if err := t.Found("a read that finds nothing within its time-out returns %d and the error %v", got,
		last); err != nil {
		return err
	}
	return errors.Join(t.Result(took, n), p.Close())
}
