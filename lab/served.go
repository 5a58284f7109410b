package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
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
	return m, nil
}
