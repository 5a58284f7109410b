package isolate

import (
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// TestPatience gives a child more time for as long as it has waited for a CPU, and within a bound.
func TestPatience(t *testing.T) {
	p := patience{waited: time.Second, spare: 3 * time.Second}
	for _, c := range []struct{ now, more time.Duration }{
		{time.Second + starvesLook/2, 0},
		{2 * time.Second, time.Second},
		{2*time.Second + starvesLook/2, 0},
		{9 * time.Second, 2 * time.Second},
		{20 * time.Second, 0},
	} {
		if d := p.more(c.now); d != c.more {
			t.Errorf("behind %v of waiting it is given %v more, want %v", c.now, d, c.more)
		}
	}
}

// TestChildThatWaitsForACPU has a child take nothing. It is given up when its time is over, but not
// while it waits for a CPU.
func TestChildThatWaitsForACPU(t *testing.T) {
	for _, starves := range []bool{false, true} {
		ours, conn := linkPair(t)
		n := 0
		for sendIn(time.Second, ours, message{Op: opDrop, Name: "x"}, nil) == nil { // until there is no room
			n++
		}
		waited, looks, taken := time.Duration(0), 0, make(chan int)
		err := sendStarving(time.Millisecond, ours, message{Op: opDrop, Name: "last"}, nil, func() time.Duration {
			if looks++; looks > 1 && starves {
				waited += time.Second
			}
			if looks == 2 && starves { // it goes on
				go func() {
					got := 0
					for {
						if m, _, err := receive(conn); err != nil || m.Name == "last" {
							taken <- got
							return
						}
						got++
					}
				}()
			}
			return waited
		})
		if starves {
			if err == nil && looks < 2 {
				t.Fatal("there was room")
			}
			if err != nil || <-taken != n {
				t.Errorf("a child that waits for a CPU is given up: %v", err)
			}
		} else if !errors.Is(err, os.ErrDeadlineExceeded) || looks != 2 {
			t.Errorf("a child that takes nothing: %v; it was looked at %d times", err, looks)
		}
		_ = ours.Close()
		_ = conn.Close()
	}
}

// TestSwapWaitsForAProcessThatStarves ends the time of a step whose process has waited for a CPU
// meanwhile: it has more, once.
func TestSwapWaitsForAProcessThatStarves(t *testing.T) {
	k := newKeeper(Keeping{Log: slog.New(slog.DiscardHandler)})
	k.swap = &swap{
		roles: []Role{Recorder}, step: prepares, late: stoppedTimer(),
		limit: patience{pid: os.Getpid(), waited: sys.CPUWait(os.Getpid()) - time.Minute, spare: starvesLook},
	}
	k.tooLate()
	if k.swap == nil {
		t.Fatal("the swap is given up, and its process waits for a CPU")
	}
	select {
	case <-k.late():
	case <-time.After(time.Minute):
		t.Fatal("nobody looks at it again")
	}
	if k.tooLate(); k.swap != nil {
		t.Error("the swap waits for ever")
	}
}
