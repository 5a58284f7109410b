package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/api"
	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

// kills is how often the recorder is killed.
const kills = 50

// TestKillAtRandomMoments kills the recorder under load. What had been reported as durable must be
// there, the log must be whole after each start, and the next sheet must name the gap; at the end
// every frame number is accounted for.
func TestKillAtRandomMoments(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: 50 kills take half a minute; run without -short")
	}
	dir := t.TempDir()
	port, err := serialtest.NewPort(filepath.Join(dir, "line"))
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	device := serialtest.NewDevice(port, serialtest.Plan{Rate: 400_000, Device: 9, Epoch: 1, Seed: 1})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var sending sync.WaitGroup
	sending.Go(func() {
		if err := device.Run(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	var named, durable uint64
	for n := range kills {
		r := startRecorder(t, dir, serialSource("line", port.Link))
		if got := verifyLog(t, dir); got < durable {
			t.Fatalf("kill %d: the log ends with record %d, %d was reported durable", n, got, durable)
		}
		moment := time.Now().Add(time.Duration(50+rng.IntN(300)) * time.Millisecond)
		durable = watchUntil(t, r, moment, durable)
		if n > 0 {
			var p ledger.Port
			// A frame that is not stored yet goes with the kill, and the next start names the gap.
			testenv.Until(t, 10*time.Second, "frames are stored",
				func() bool { p = r.sheet(t).Ports[0]; return p.Frames.Stored > 0 })
			named += p.Frames.Missing
			if len(p.Outages) == 0 || !strings.HasPrefix(p.Outages[0].Cause, "the recorder was not running") {
				t.Errorf("kill %d: the sheet does not name the time in which nobody recorded: %+v", n, p.Outages)
			}
		}
		if err := r.Cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = r.Cmd.Wait() // killed
	}
	r := startRecorder(t, dir, serialSource("line", port.Link))
	testenv.Until(t, 10*time.Second, "frames come", func() bool { return r.sheet(t).Ports[0].Frames.Stored > 100 })
	cancel()
	sending.Wait()
	if !port.Drain(time.Minute) {
		t.Fatal("the port is not read to the end")
	}
	last := r.stop(t)
	verifyLog(t, dir)

	stored, gaps := numbers(t, filepath.Join(dir, "data"))
	missing := device.Truth.Made - stored
	named += last.Ports[0].Frames.Missing
	if gaps != missing {
		t.Errorf("%d frames made, %d stored: the log shows %d missing between them, want %d", device.Truth.Made, stored,
			gaps, missing)
	}
	if named != missing {
		t.Errorf("the sheets named %d missing frames, %d are", named, missing)
	}
	starts := 0
	history := command(t, "log", "sheets", "--dir", filepath.Join(dir, "data"), "--json")
	err = archive.EachStart(readerOf(history), func(s archive.StartSheet) error {
		starts++
		if !s.Sheet.Balanced {
			return fmt.Errorf("start %d does not balance", starts)
		}
		return nil
	})
	if err != nil || starts != kills+1 {
		t.Errorf("log sheets: %d starts, %v; want %d", starts, err, kills+1)
	}
	t.Logf("%d kills: %d frames made, %d stored, %d lost while nobody recorded, all named", kills, device.Truth.Made,
		stored, missing)
}

// watchUntil follows the durable position until a moment, and returns the last one reported.
func watchUntil(t *testing.T, r *recorder, moment time.Time, durable uint64) uint64 {
	t.Helper()
	for time.Now().Before(moment) {
		var s api.Status
		if r.get("api/v1/status", &s) && s.Sample.Log.Durable > 0 {
			durable = max(durable, s.Sample.Log.Durable)
		}
	}
	return durable
}

// verifyLog returns the last record of a log that must be whole.
func verifyLog(t *testing.T, dir string) uint64 {
	t.Helper()
	fs, err := seglog.Dir(filepath.Join(dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := seglog.Verify(fs)
	if err != nil || !s.Clean() {
		t.Fatalf("log verify: %+v, %v", s, err)
	}
	return s.Last
}

// numbers reads the frame numbers out of a log: how many different ones there are, and how many lie
// between that are not.
func numbers(t *testing.T, dir string) (stored, gaps uint64) {
	t.Helper()
	fs, err := seglog.Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	streams, err := archive.LoadStreams(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := seglog.NewReader(fs, 0)
	defer r.Close()
	next := uint64(0)
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return stored, gaps
		}
		if err != nil {
			t.Fatal(err)
		}
		d, _ := streams.Describe(rec)
		if *d.Number < next {
			t.Fatalf("frame %d is stored twice, or out of order", *d.Number)
		}
		gaps += *d.Number - next
		next = *d.Number + 1
		stored++
	}
}
