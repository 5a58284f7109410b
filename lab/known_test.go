package lab

import (
	"context"
	"io"
	"os/exec"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

// spins is a shell that computes for a while, and ends by itself.
const spins = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"

// knownIn is what a turn of a contestant of the tests knows of the machine's CPU time.
func knownIn(t *testing.T, name string, scene Scene) outcome {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	o := Quick()
	o.Dir = t.TempDir()
	b, err := NewBench(t.Context(), o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	e := &Experiment{Name: "test", Scene: func(*Bench, *Contestant, Params) (*Scene, error) { return &scene, nil }}
	c := Ours(name, func(*contestant.Turn) error { return nil }) // the program that is started looks it up by its name
	did, err := turn{b, c, nil, 200 * time.Millisecond, false}.run(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return did
}

// TestLoadOfAnotherProgramIsKnown: what a load uses that is a program, as wrk is, did not go to
// others.
func TestLoadOfAnotherProgramIsKnown(t *testing.T) {
	var used time.Duration
	did := knownIn(t, "sleeps", Scene{Load: func(ctx context.Context, _ time.Duration) (func(Metrics), error) {
		c := exec.CommandContext(ctx, "sh", "-c", spins)
		err := c.Run()
		used = c.ProcessState.UserTime() + c.ProcessState.SystemTime() // of the last time, which counts
		return func(Metrics) {}, err
	}})
	if used == 0 || did.known < used {
		t.Errorf("%v of CPU time are known; the load alone used %v", did.known, used)
	}
}
