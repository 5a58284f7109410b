// Command serial is the contestant go.bug.st/serial: a goroutine for each port that reads and takes
// frames. It checks no CRC.
package main

import (
	"sync"

	"github.com/tallywheel/tallywheel/lab/contestant"
	"go.bug.st/serial"
)

func main() { contestant.Main(run) }

func run(t *contestant.Turn) error {
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
	return t.Result(took, sum.N, append(contestant.Latencies(sum.Latencies), contestant.Value{Metric: "MB_per_s", V: mb / took.Seconds()})...)
}
