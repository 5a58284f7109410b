package serialtest_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/serial/serialtest"
)

// TestEachFaultComes: with Each every kind of fault comes as often in the first round of them,
// though the time is over at once; other seeds, other orders; and who cancels is obeyed.
func TestEachFaultComes(t *testing.T) {
	plan, err := serialtest.PlanFor(serialtest.Disturbed, 1, 7)
	if err != nil {
		t.Fatal(err)
	}
	plan.Each, plan.Gap, plan.Unplug = 3, 20, 0
	for seed := range uint64(5) {
		plan.Seed = seed
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		got := send(t, ctx, plan)
		cancel()
		if got.Duplicated != 3 || got.Corrupted != 3 || got.Reordered != 3 || got.Stalls != 3 || got.Dropped < 3 ||
			got.Dropped > 9 || got.Outages != 0 {
			t.Errorf("seed %d: %+v", seed, got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := send(t, ctx, plan); got.Corrupted != 0 {
		t.Errorf("cancelled, and yet: %+v", got)
	}
}

// send has a device send to a reader until it ends, and returns what it did.
func send(t *testing.T, ctx context.Context, plan serialtest.Plan) serialtest.Truth {
	t.Helper()
	port, err := serialtest.NewPort(filepath.Join(t.TempDir(), "port"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(port.Link, os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for b := make([]byte, 4096); ; {
			if _, err := f.Read(b); err != nil {
				return // the port is closed
			}
		}
	}()
	d := serialtest.NewDevice(port, plan)
	err = d.Run(ctx)
	err = errors.Join(err, port.Close())
	<-read
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return d.Truth
}
