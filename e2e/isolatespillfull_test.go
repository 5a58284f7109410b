package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

// crammed is a line of a recorder of three processes whose log takes nothing, for its disk is full:
// what the device sends runs over into a file. Once that is full, too, nobody reads the line, and
// what the port does not hold stays with the device.
type crammed struct {
	dir, data string // of the recorder, and of its log
	source    string // of the configuration
	port      *serialtest.Port
	device    *serialtest.Device
	end       func() // ends the sending
}

// cram makes a line that sends at a rate, in bytes a second, and whose file takes so many MiB.
func cram(t *testing.T, rate, most int) *crammed {
	t.Helper()
	dir, data, over, port := twoDisks(t)
	return &crammed{
		dir: dir, data: data, port: port,
		source: fmt.Sprintf("  - {id: line, serial: {port: %s}, frame: tally128, overflow: spill, spill: {path: %s, max: %dMiB}}\n", port.Link, over, most),
		device: serialtest.NewDevice(port, serialtest.Plan{Rate: rate, Device: 9, Epoch: 1, Seed: 1}),
	}
}

// fill has the device send, and fills the disk of the log by what is not the log's.
func (c *crammed) fill(t *testing.T, r *recorder) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var sending sync.WaitGroup
	sending.Go(func() {
		if err := c.device.Run(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	c.end = sync.OnceFunc(func() { cancel(); sending.Wait() })
	t.Cleanup(c.end)
	testenv.Until(t, time.Minute, "the line is recorded", func() bool { return r.port().Frames.Stored > 0 })
	// less than a segment and the reserve are left
	if err := os.WriteFile(c.others(), make([]byte, 40<<20), 0o600); err != nil {
		t.Fatal(err)
	}
}

// runOver is fill, and the end of the sending, with so many bytes in the file, which has room. All
// that was sent is read.
func (c *crammed) runOver(t *testing.T, r *recorder, bytes uint64) {
	t.Helper()
	c.fill(t, r)
	testenv.Until(t, time.Minute, "bytes have run over", func() bool { return r.port().Spilled > bytes })
	c.end()
	if !c.port.Drain(time.Minute) {
		t.Fatal("the port is not read to the end")
	}
}

// others is what fills the disk of the log.
func (c *crammed) others() string { return filepath.Join(c.data, "others") }

// isFull waits until nothing takes any more of what the device sends.
func (c *crammed) isFull(t *testing.T, r *recorder) {
	t.Helper()
	testenv.Until(t, 2*time.Minute, "the disk and the file are full", func() bool {
		p := r.port()
		return p.Spilled > 3<<20 && slices.ContainsFunc(p.Outages, func(o ledger.Outage) bool {
			return o.To == 0 && strings.HasPrefix(o.Cause, "no room in the file")
		})
	})
}

// empty makes room, ends the sending, and waits until all that was sent is stored.
func (c *crammed) empty(t *testing.T, r *recorder) {
	t.Helper()
	if err := os.Remove(c.others()); err != nil {
		t.Fatal(err)
	}
	c.end()
	if !c.port.Drain(time.Minute) {
		t.Fatal("the port is not read to the end")
	}
	testenv.Until(t, 2*time.Minute, "all is stored", func() bool {
		p := r.port()
		return p.ID != "" && p.Frames.InFlight == 0 && p.Spilled == 0 && p.Frames.Stored >= c.device.Truth.Made
	})
}

// hold holds the last sheet and the log to what the device has sent. outages are how those begin
// that there may be.
func (c *crammed) hold(t *testing.T, s ledger.Sheet, outages ...string) {
	t.Helper()
	truth := c.device.Truth
	if len(s.Ports) != 1 || len(s.Leaving) > 0 || !s.Balanced {
		t.Fatalf("the last sheet: %+v", s)
	}
	p := s.Ports[0]
	if b := p.Bytes; b.Read != truth.Bytes || b.Resync+b.Partial > 0 || len(p.Unread) > 0 || p.Spilled > 0 {
		t.Errorf("%d bytes were sent; the books have %+v, unread %v, %d in the file", truth.Bytes, b, p.Unread,
			p.Spilled)
	}
	if f := p.Frames; f.OK != truth.Made || f.Stored != truth.Made || len(f.Dropped) > 0 ||
		f.Missing+f.Duplicate+f.Corrupt+f.Late > 0 {
		t.Errorf("%d frames were made, and the books have %+v", truth.Made, f)
	}
	outages = append(outages, "no room in the file", "no room in memory")
	for _, o := range p.Outages {
		is := func(cause string) bool { return strings.HasPrefix(o.Cause, cause) }
		if o.To == 0 || !slices.ContainsFunc(outages, is) {
			t.Errorf("an outage: %+v", o)
		}
	}
	verifyLog(t, c.dir)
	if stored, gaps := numbers(t, c.data); stored != truth.Made || gaps > 0 { // it sees to the order, too
		t.Errorf("the log has %d frames, and %d gaps, of %d", stored, gaps, truth.Made)
	}
	t.Logf("%d bytes in %d frames; outages %+v", truth.Bytes, truth.Made, p.Outages)
}

// TestIsolatedChangesWithAFullFile has other processes take the places of those whose disk and file
// are full: for a changed log, a changed API, and another program. They hold what those held, and
// all of it is stored once there is room, each frame once and in order. No request fails, but at an
// address that the API has left.
func TestIsolatedChangesWithAFullFile(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, u *upgrading){
		"log": func(t *testing.T, u *upgrading) {
			stopAsking := u.askByTwo(t)
			defer stopAsking()
			u.reload(t, "segment: 4MiB", "segment: 4MiB, delay: 20ms", isolate.Recorder)
		},
		"api": func(t *testing.T, u *upgrading) {
			u.reload(t, "listen: 127.0.0.1:0", fmt.Sprintf("listen: 127.0.0.1:%d", freePort(t)), isolate.Recorder)
			stopAsking := u.askByTwo(t)
			defer stopAsking()
			// the next one has the new socket from the keeper
			u.reload(t, "segment: 4MiB", "segment: 4MiB, delay: 20ms", isolate.Recorder)
		},
		"program": func(t *testing.T, u *upgrading) {
			stopAsking := u.askByTwo(t)
			defer stopAsking()
			u.upgradeToItself(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := cram(t, 500_000, 4)
			u := startUpgrading(t, c.dir, c.source)
			c.fill(t, u.recorder)
			c.isFull(t, u.recorder)
			change(t, u)
			c.isFull(t, u.recorder)
			if got := u.process(t, isolate.Recorder, 0); got.Restarts != 0 {
				t.Errorf("the recorder counts %d crashes", got.Restarts)
			}
			c.empty(t, u.recorder)
			c.hold(t, u.stop(t), "the reader was restarted")
		})
	}
}
