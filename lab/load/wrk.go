package load

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/loadgen"
)

// Wrk is the load of the program wrk, which articles use: its time is in whole seconds, and
// connecting is part of it. What comes before the time that counts is a load of ours, which can be
// shorter.
type Wrk struct{ Threads, Connections int }

// Scene makes an address for one turn.
func (w Wrk) Scene(*lab.Bench) (*lab.Scene, error) {
	path, err := exec.LookPath("wrk")
	if err != nil {
		return nil, fmt.Errorf("the load of the articles is wrk's: apt install wrk (%w)", err)
	}
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	warm := false
	run := func(ctx context.Context, length time.Duration) (func(lab.Metrics), error) {
		if !warm {
			warm = true
			return func(lab.Metrics) {}, w.warm(ctx, addr, length)
		}
		out, err := exec.CommandContext(ctx, path, "-t"+strconv.Itoa(w.Threads), "-c"+strconv.Itoa(w.Connections),
			"-d"+strconv.Itoa(max(1, int(math.Round(length.Seconds()))))+"s", "--latency", "http://"+addr+"/").Output()
		if err != nil {
			return nil, fmt.Errorf("wrk: %w", err)
		}
		said, err := parseWrk(string(out))
		if err != nil {
			return nil, err
		}
		return func(m lab.Metrics) { maps.Copy(m, said) }, nil
	}
	return &lab.Scene{Params: lab.Params{"addr": addr}, Serves: addr, Load: run}, nil
}

// warm has a server do for the first time what it is going to do.
func (w Wrk) warm(ctx context.Context, addr string, length time.Duration) error {
	l, err := loadgen.New(loadgen.Config{
		URL: "http://" + addr + "/", Connections: w.Connections, Threads: min(2, w.Connections),
	})
	if err != nil {
		return err
	}
	r, err := l.Run(ctx, length)
	if err = errors.Join(err, l.Close()); err == nil && r.Failed() > 0 {
		err = fmt.Errorf("%d requests failed: %v", r.Failed(), r.Errors)
	}
	return err
}

// parseWrk reads the report of wrk --latency.
func parseWrk(out string) (lab.Metrics, error) {
	m := lab.Metrics{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		switch {
		case strings.Contains(line, "Socket errors:"), strings.Contains(line, "Non-2xx"):
			return nil, fmt.Errorf("wrk: %s", strings.TrimSpace(line))
		case len(f) >= 4 && f[1] == "requests" && f[2] == "in": // 12345 requests in 1.00s, 1.2MB read
			n, err1 := strconv.ParseFloat(f[0], 64)
			took, err2 := time.ParseDuration(strings.TrimSuffix(f[3], ","))
			if err1 != nil || err2 != nil {
				return nil, fmt.Errorf("wrk: %q is no result", strings.TrimSpace(line))
			}
			m["ops"], m["wall_s"] = n, took.Seconds()
		case len(f) == 5 && f[0] == "Latency": // its mean, deviation, maximum, and how many are within the deviation
			d, err := time.ParseDuration(f[1])
			if err != nil {
				return nil, fmt.Errorf("wrk: %q is no latency", strings.TrimSpace(line))
			}
			m["latency_us_mean"] = float64(d) / float64(time.Microsecond)
		case len(f) == 2 && (f[0] == "50%" || f[0] == "90%" || f[0] == "99%"):
			d, err := time.ParseDuration(f[1])
			if err != nil {
				return nil, fmt.Errorf("wrk: %q is no latency", strings.TrimSpace(line))
			}
			m["latency_us_p"+strings.TrimSuffix(f[0], "%")] = float64(d) / float64(time.Microsecond)
		}
	}
	if m["ops"] == 0 {
		return nil, fmt.Errorf("wrk: no request was answered: %q", strings.TrimSpace(out))
	}
	return m, nil
}
