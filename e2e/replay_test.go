package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

// TestARecordingOfAReplayIsTheSame: a device drops, repeats, damages and reorders frames; what was
// recorded of it is played to a second recorder, whose bytes and books are the same.
func TestARecordingOfAReplayIsTheSame(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	port, err := serialtest.NewPort(filepath.Join(first, "line"))
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	source := func(path string) string {
		return fmt.Sprintf("  - {id: line, serial: {port: %s}, frame: tally128, quarantine: true}\n", path)
	}
	r := startRecorder(t, first, source(port.Link))
	testenv.Until(t, time.Minute, "the port is open", func() bool { return r.sheet(t).Ports[0].State == "open" })
	device := serialtest.NewDevice(port, serialtest.Plan{
		Rate: 400_000, Device: 1, Epoch: 9, Seed: testenv.Seed(t), Drop: 50, Duplicate: 50, Corrupt: 30, Reorder: 50,
	})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := device.Run(ctx); err != nil {
		t.Fatal(err)
	}
	read := func(r *recorder) func() bool {
		return func() bool { return r.sheet(t).Ports[0].Bytes.Read == device.Truth.Bytes }
	}
	testenv.Until(t, time.Minute, "all is read", read(r))
	was := r.stop(t).Ports[0]
	if device.Truth.Corrupted == 0 || was.Bytes.Quarantined == 0 || was.Bytes.Quarantined != was.Bytes.Resync {
		t.Fatalf("it is no test: %+v of %+v", was.Bytes, device.Truth)
	}

	link := filepath.Join(second, "line")
	replay := testenv.Start(t, testenv.Binary(t), "replay", "--dir", filepath.Join(first, "data"), "--source", "line",
		"--to", "pty:"+link, "--speed", "max")
	testenv.Until(t, time.Minute, "the port is there", func() bool { _, err := os.Lstat(link); return err == nil })
	again := startRecorder(t, second, source(link))
	if err := replay.Cmd.Wait(); err != nil {
		t.Fatalf("replay: %v: %s", err, replay.Err)
	}
	testenv.Until(t, time.Minute, "all is read again", read(again))
	is := again.stop(t).Ports[0]
	if !reflect.DeepEqual(is.Frames, was.Frames) || is.Bytes != was.Bytes {
		t.Errorf("the books are\n%+v %+v, and were\n%+v %+v", is.Frames, is.Bytes, was.Frames, was.Bytes)
	}
	for _, more := range [][]string{nil, {"--quarantine"}} {
		raw := func(dir string) string {
			return command(t, append([]string{
				"log", "export", "--format", "raw", "--source", "line", "--dir",
				filepath.Join(dir, "data"),
			}, more...)...)
		}
		if a, b := raw(first), raw(second); a != b || a == "" {
			t.Errorf("%v: %d bytes became %d, or others", more, len(a), len(b))
		}
	}
}
