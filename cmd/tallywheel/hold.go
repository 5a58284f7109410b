package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tallywheel/tallywheel/loadgen"
)

// runHold is load --hold.
func (l *loadFlags) runHold(c *cobra.Command, urls []string) error {
	if len(urls) > 1 {
		return fmt.Errorf("%w: load: --hold goes with one URL", errUsage)
	}
	if err := idle(c, "is nothing for --hold", "rate", "pipeline", "warmup", "think", "close", "threads", "realtime",
		"pid", "method", "header", "data", "insecure"); err != nil {
		return err
	}
	if l.format != loadText && l.format != loadJSON {
		return idle(c, "is nothing for --hold, but text and json", "format")
	}
	r, err := loadgen.Hold(c.Context(), loadgen.HoldConfig{
		URL: urls[0], Spread: l.spread, Connections: l.cfg.Connections, Every: l.hold, Duration: l.cfg.Duration,
		Timeout: l.cfg.Timeout,
	})
	if errors.Is(err, loadgen.ErrConfig) {
		return fmt.Errorf("%w: %w", errUsage, err)
	} else if err != nil {
		return err
	}
	if l.format == loadJSON {
		err = json.NewEncoder(c.OutOrStdout()).Encode(r)
	} else {
		q := r.LatencyUs
		_, err = fmt.Fprintf(c.OutOrStdout(), `%s open, made in %.1f s: %.0f a second; %.0f bytes each here
%s answered in %.1f s, %d failed, %d sent late
latency, µs: mean %.0f, p50 %d, p90 %d, p99 %d, p99.9 %d, max %d
`, several(r.Connections, "connection"), r.OpenSeconds, r.OpenPerSec, r.BytesPerConn, several(r.Requests, "request"), r.Seconds, r.Failed, r.Late, q.Mean, q.P50, q.P90, q.P99, q.P999, q.Max)
	}
	if err == nil && r.Failed > 0 {
		err = fmt.Errorf("not answered: %s", several(r.Failed, "request"))
	}
	return err
}
