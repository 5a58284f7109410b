package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

const serveTick = 5 * time.Millisecond // between looks whether a server accepts

// serves waits until a server accepts connections.
func (p *process) serves(ctx context.Context, scene Scene) error {
	ended := make(chan struct{})
	go func() { // it says nothing, unless it ends
		_, _ = p.out.ReadString(0)
		close(ended)
	}()
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	var d net.Dialer
	for {
		c, err := d.DialContext(ctx, "tcp", scene.Serves)
		if err == nil {
			return c.Close()
		}
		select {
		case <-ended:
			_ = p.cmd.Wait()
			if text := p.said(); text != "" {
				return errors.New(text)
			}
			return errors.New("it ended and served nobody")
		case <-ctx.Done():
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
			return fmt.Errorf("it does not accept connections at %s: %w", scene.Serves, err)
		case <-time.After(serveTick):
		}
	}
}

// stop ends a server. What it did is what the load has counted.
func (p *process) stop(judge func(Metrics)) (Metrics, error) {
	m := Metrics{}
	judge(m)
	if m["ops"] <= 0 || m["wall_s"] <= 0 {
		return nil, errors.New("no request was answered")
	}
	m["ns_per_op"], m["ops_per_s"] = m["wall_s"]*1e9/m["ops"], m["ops"]/m["wall_s"]
	_ = p.cmd.Process.Kill() // a server that ends in good order takes its time, and nobody needs it
	_ = p.cmd.Wait()
	m.collections(p.talk.String())
	return m, nil
}

// collections adds what a server in Go says of its garbage collections, if GODEBUG=gctrace=1 has it
// say something: how many there were, and how long each stopped it, at its begin and at its end:
// in all, and a pause on average. The lines are described at package runtime: gc 1 @0.1s 2%:
// 0.02+1.3+0.07 ms clock, …
func (m Metrics) collections(talk string) {
	for line := range strings.Lines(talk) {
		if !strings.HasPrefix(line, "gc ") {
			continue
		}
		_, times, _ := strings.Cut(line, "%: ")
		times, _, ok := strings.Cut(times, " ms clock")
		phases := strings.Split(times, "+")
		if !ok || len(phases) != 3 {
			continue
		}
		begin, err1 := strconv.ParseFloat(phases[0], 64)
		end, err2 := strconv.ParseFloat(phases[2], 64)
		if err1 == nil && err2 == nil {
			m[GCCycles.name]++
			m[GCPause.name] += 1e3 * (begin + end)
		}
	}
	if n := m[GCCycles.name]; n > 0 {
		m[GCPauseMean.name] = m[GCPause.name] / (2 * n)
	}
}
