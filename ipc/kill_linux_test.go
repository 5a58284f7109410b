package ipc

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ring"
)

var killFor = flag.Duration("kill-for", 2*time.Second, "how long processes at either end of a ring are killed")

// killRing is that of the processes that are killed. Its owner's first word is how many messages
// the consumer has taken: what it does with them, and lasts.
var killRing = RingConfig{Slot: messageSize, Size: 4096, Owner: 8}

// inheritRing opens the ring that a child has as descriptor 4.
func inheritRing() (*Ring, *Conn, error) {
	c, err := link()
	if err != nil {
		return nil, nil, err
	}
	r, err := Open(os.NewFile(4, "ring"), killRing)
	return r, c, err
}

func produceForEver() error {
	r, c, err := inheritRing()
	if err != nil {
		return err
	}
	s, err := r.Sender()
	if err != nil {
		return err
	}
	if err := c.Send(Message{Data: []byte("ready")}); err != nil {
		return err
	}
	for buf := make([]byte, messageSize); ; {
		if err := s.Send(fill(buf, s.Count(), s.Generation()), -1); err != nil {
			return err
		}
	}
}

func consumeForEver() error {
	r, c, err := inheritRing()
	if err != nil {
		return err
	}
	in, err := r.Receiver()
	if err != nil {
		return err
	}
	if err := c.Send(Message{Data: []byte("ready")}); err != nil {
		return err
	}
	for buf := make([]byte, messageSize); ; {
		if err := consumeOne(r, in, buf, -1); err != nil {
			return err
		}
	}
}

// consumeOne takes a message and checks that it is the next, whole.
func consumeOne(r *Ring, in *Receiver, buf []byte, within time.Duration) error {
	n, err := in.Peek(buf, within)
	if err != nil {
		return err
	}
	k := in.Count()
	if err := check(buf[:n], k); err != nil {
		return err
	}
	taken := ring.Uint64(r.Owner(), 0)
	if has := taken.Load(); has != k && has != k+1 { // k+1: killed before Discard
		return fmt.Errorf("message %d comes after %d were taken", k, has)
	}
	taken.Store(k + 1)
	in.Discard()
	return nil
}

// TestKilledProcesses kills the processes at either end of a ring at random moments.
func TestKilledProcesses(t *testing.T) {
	leaksNothing := descriptors(t)
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	r, err := Create(killRing)
	if err != nil {
		t.Fatal(err)
	}
	names := [2]string{"produce", "consume"}
	var running [2]*exec.Cmd
	var links [2]*Conn
	var starts [2]int
	start := func(i int) {
		starts[i]++
		running[i], links[i] = child(t, names[i], r.File())
		if m, err := links[i].Receive(); err != nil {
			t.Fatalf("%s: %v: %v", names[i], err, running[i].Wait())
		} else if m.From.PID != running[i].Process.Pid {
			t.Fatalf("%s speaks as %v", names[i], m.From)
		}
	}
	kill := func(i int) {
		_ = running[i].Process.Kill()
		_ = running[i].Wait()
		_ = links[i].Close()
		if s := running[i].ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() {
			t.Fatalf("%s ended by itself: %v", names[i], running[i].ProcessState)
		}
	}
	start(0)
	start(1)
	kills := 0
	few := func() bool { return min(starts[0], starts[1]) < 3 } // on a machine that stood still
	for begin := time.Now(); time.Since(begin) < *killFor || few(); kills++ {
		i := rng.IntN(2)
		time.Sleep(time.Duration(rng.IntN(3_000_000))) // the moment of the kill, wherever it finds them
		kill(i)
		if rng.IntN(4) == 0 { // the other one, too
			kill(1 - i)
			start(1 - i)
		}
		start(i)
	}
	kill(1)
	kill(0)

	// What is left comes, and it is all.
	in, s := take(t, r.Receiver), take(t, r.Sender)
	for in.Count() < s.Count() {
		if err := consumeOne(r, in, make([]byte, messageSize), 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d kills, %d messages", kills, s.Count())
	if in.Count() < uint64(kills) || s.Generation() < 3 || in.Generation() < 3 {
		t.Errorf("%d messages by generations %d and %d in %d kills: too few to say anything", in.Count(),
			s.Generation(), in.Generation(), kills)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, soon, "all descriptors given back", func() bool { return descriptors(t) <= leaksNothing+2 })
}

// TestTheDeathOfAPeerIsTold holds what the other end says to what has happened to processes.
func TestTheDeathOfAPeerIsTold(t *testing.T) {
	leaksNothing(t, func() {
		r, err := Create(killRing)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		in := take(t, r.Receiver)
		buf := make([]byte, messageSize)
		for generation := uint32(1); generation <= 3; generation++ {
			cmd, link := child(t, "produce", r.File())
			p, err := OpenProcess(cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := link.Receive(); err != nil {
				t.Fatal(err)
			}
			in.Watch(p, generation) // whether the death of the one before it was told or not
			if err := consumeOne(r, in, buf, soon); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			for err == nil {
				err = consumeOne(r, in, buf, soon)
			}
			if !errors.Is(err, ErrPeerDied) {
				t.Fatalf("after the kill of generation %d: %v", generation, err)
			}
			_, _ = cmd.Wait(), p.Close()
			_ = link.Close()
		}
		s := take(t, r.Sender) // alive again, and in order at the end
		if _, err := in.Receive(buf, time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the successor of one that was killed: %v", err)
		}
		if err := s.Send(fill(buf, s.Count(), 9), 0); err != nil {
			t.Fatal(err)
		}
		s.Close()
		if err := consumeOne(r, in, buf, soon); err != nil {
			t.Fatal(err)
		}
		if _, err := in.Receive(buf, soon); !errors.Is(err, io.EOF) {
			t.Errorf("after a close: %v", err)
		}
	})
}
