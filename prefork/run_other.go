//go:build !linux

package prefork

import "context"

func run(ctx context.Context, cfg Config, worker func(*Worker) error) error {
	return runAlone(ctx, cfg, worker)
}

// Master is Linux only: here there is one process.
type Master struct{}
