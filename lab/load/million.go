package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/loadgen"
)

// Million is connections that are open and mostly silent: each sends a request every Every. They
// are spread over loopback addresses from 127.1.0.1 upward.
type Million struct {
	Connections int
	Every       time.Duration
	Least       time.Duration // that they are held
}

// each is the most connections to one address.
const each = 2000

// Scene makes a port for one turn. There is no room for more connections than memory has.
func (c Million) Scene(*lab.Bench) (*lab.Scene, error) {
	ln, err := net.Listen("tcp", "127.1.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := ln.Addr().String()
	if err := ln.Close(); err != nil {
		return nil, err
	}
	spread := max(1, (c.Connections+each-1)/each)
	pid := 0
	run := func(ctx context.Context, length time.Duration) (func(lab.Metrics), error) {
		cfg := loadgen.HoldConfig{
			URL: "http://" + addr + "/", Spread: spread, Connections: c.Connections,
			Every: c.Every, Duration: max(length, c.Least),
		}
		if pid == 0 { // the warm-up
			cfg.Connections, cfg.Duration = 100, length
			_, err := loadgen.Hold(ctx, cfg)
			return func(lab.Metrics) {}, err
		}
		r, err := loadgen.Hold(ctx, cfg)
		if err != nil {
			return nil, err
		}
		memory, err := lab.Resident(pid)
		if err != nil {
			return nil, err
		}
		if r.Failed > 0 || r.Connections < c.Connections {
			return nil, fmt.Errorf("%d requests failed, %d of %d connections are open", r.Failed, r.Connections,
				c.Connections)
		}
		if r.Requests == 0 {
			return nil, errors.New("no request was due: hold them longer")
		}
		return func(m lab.Metrics) {
			m["ops"], m["wall_s"], m["opened_per_s"] = float64(r.Requests), r.Seconds, r.OpenPerSec
			m["bytes_per_conn"] = float64(memory) / float64(c.Connections)
			latencies(m, r.LatencyUs, r.Requests)
		}, nil
	}
	return &lab.Scene{
		Params: lab.Params{"addr": addr, "spread": strconv.Itoa(spread)}, Serves: addr, Load: run,
		Started: func(p int) { pid = p },
	}, nil
}
