package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

// twoDisks is a log's folder on a small disk of its own, one beside it to run over into, and a
// line.
func twoDisks(t *testing.T) (dir, data, over string, port *serialtest.Port) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: it takes seconds to fill a disk by a line; run without -short")
	}
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: mounting needs root; run as root")
	}
	dir = t.TempDir()
	data, over = filepath.Join(dir, "data"), filepath.Join(dir, "over")
	for _, path := range []string{data, over} {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mount("none", data, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("SKIPPED: no file system can be mounted here: %v; run where root may", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(data, syscall.MNT_DETACH) })
	port, err := serialtest.NewPort(filepath.Join(dir, "line"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = port.Close() })
	return dir, data, over, port
}

// TestSpillWhileTheDiskIsFull fills the disk of the log under a recorder that reads a line. What
// the log does not take runs over into a file on another disk, is in flight in every sheet, and is
// stored once there is room: nothing is lost, and all is in order.
func TestSpillWhileTheDiskIsFull(t *testing.T) {
	dir, data, over, port := twoDisks(t)
	r := startRecorder(t, dir, fmt.Sprintf(
		"  - {id: line, serial: {port: %s}, frame: tally128, overflow: spill, buffer: 4MiB, spill: {path: %s, max: 64MiB}}\n", port.Link, over))
	// less than a segment and the reserve are left
	if err := os.WriteFile(filepath.Join(data, "others"), make([]byte, 40<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	device := serialtest.NewDevice(port, serialtest.Plan{Rate: 4_000_000, Device: 9, Epoch: 1, Seed: 1})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var sending sync.WaitGroup
	sending.Go(func() {
		if err := device.Run(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	var p ledger.Port
	testenv.Until(t, time.Minute, "frames have run over",
		func() bool { p = r.sheet(t).Ports[0]; return p.Spilled > 4<<20 })
	if p.Frames.InFlight*128 < p.Spilled || len(p.Frames.Dropped) > 0 {
		t.Errorf("while the disk is full: %+v", p)
	}
	cancel()
	sending.Wait()
	if !port.Drain(time.Minute) {
		t.Fatal("the port is not read to the end")
	}
	if err := os.Remove(filepath.Join(data, "others")); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, time.Minute, "all is stored", func() bool {
		p = r.sheet(t).Ports[0]
		return p.Frames.InFlight == 0 && p.Frames.Stored == device.Truth.Made
	})
	last := r.stop(t).Ports[0]
	if f := last.Frames; len(f.Dropped) > 0 || f.Missing > 0 || last.Spilled > 0 {
		t.Errorf("the last sheet: %+v", last)
	}
	if stored, gaps := numbers(t, data); stored != device.Truth.Made || gaps > 0 {
		t.Errorf("the log has %d of %d frames, and %d gaps", stored, device.Truth.Made, gaps)
	}
}
