package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

// TestIsolatedSpill fills the disk of the log under a recorder of three processes. What its memory
// has no room for runs over into a file on another disk, which outlives kills of reader and
// recorder. Once there is room, all of it is stored, each frame once, and in order.
func TestIsolatedSpill(t *testing.T) {
	dir, data, over, port := twoDisks(t)
	r := startIsolated(t, dir, fmt.Sprintf(
		"  - {id: line, serial: {port: %s}, frame: tally128, overflow: spill, spill: {path: %s, max: 256MiB}}\n", port.Link, over))
	device := serialtest.NewDevice(port, serialtest.Plan{Rate: 250_000, Device: 9, Epoch: 1, Seed: 1})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var sending sync.WaitGroup
	sending.Go(func() {
		if err := device.Run(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	var p ledger.Port
	testenv.Until(t, time.Minute, "the line is recorded", func() bool { return r.port().Frames.Stored > 0 })
	// less than a segment and the reserve are left
	if err := os.WriteFile(filepath.Join(data, "others"), make([]byte, 40<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	spills := func(n uint64) {
		testenv.Until(t, time.Minute, fmt.Sprintf("%d bytes have run over", n), func() bool {
			p = r.port()
			return p.Spilled > n
		})
	}
	spills(1 << 20)
	if len(p.Frames.Dropped) > 0 || p.Bytes.Read+p.Spilled < 1<<20 {
		t.Errorf("while the disk is full: %+v", p)
	}
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	last := map[isolate.Role]int{}
	for n := range 9 {
		role := []isolate.Role{isolate.Reader, isolate.Recorder, isolate.Reader}[n%3]
		q := r.process(t, role, last[role])
		last[role] = q.PID
		time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond) // the moment of the kill
		if err := syscall.Kill(q.PID, syscall.SIGKILL); err != nil {
			t.Fatalf("kill %d: %v", n, err)
		}
	}
	for role, pid := range last {
		r.process(t, role, pid)
	}
	spills(p.Spilled)
	if err := os.Remove(filepath.Join(data, "others")); err != nil {
		t.Fatal(err)
	}
	for n := range 4 { // while the file is read
		role := []isolate.Role{isolate.Reader, isolate.Recorder}[n%2]
		q := r.process(t, role, last[role])
		last[role] = q.PID
		time.Sleep(time.Duration(rng.IntN(50)) * time.Millisecond)
		if err := syscall.Kill(q.PID, syscall.SIGKILL); err != nil {
			t.Fatalf("kill %d: %v", n, err)
		}
	}
	cancel()
	sending.Wait()
	if !port.Drain(time.Minute) {
		t.Fatal("the port is not read to the end")
	}
	testenv.Until(t, 2*time.Minute, "all is stored", func() bool {
		p = r.port()
		return p.ID != "" && p.Frames.InFlight == 0 && p.Spilled == 0 &&
			p.Frames.Stored+p.Unread[ledger.UnreadUncertain] >= device.Truth.Made
	})
	s := r.stop(t)
	end := s.Ports[0]
	if f := end.Frames; len(f.Dropped) > 0 || f.Missing > 0 || end.Spilled > 0 || !s.Balanced {
		t.Errorf("the last sheet: %+v", end)
	}
	if uncertain := end.Unread[ledger.UnreadUncertain]; uncertain > 0 {
		t.Logf("%d bytes are uncertain", uncertain)
	} else if stored, gaps := numbers(t, data); stored != device.Truth.Made || gaps > 0 || end.Frames.Stored != stored {
		t.Errorf("the log has %d frames, %d gaps, and the books %d, of %d", stored, gaps, end.Frames.Stored,
			device.Truth.Made)
	}
	for _, o := range end.Outages {
		if !strings.Contains(o.Cause, "was restarted") {
			t.Errorf("an outage: %+v", o)
		}
	}
}

// port is the account of the one source, empty while no recorder serves.
func (r *recorder) port() (p ledger.Port) {
	var s ledger.Sheet
	if r.find(); r.get("api/v1/sheet", &s) && len(s.Ports) == 1 {
		p = s.Ports[0]
	}
	return p
}
