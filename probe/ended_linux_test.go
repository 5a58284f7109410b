package probe

import (
	"os/exec"
	"testing"
	"time"
)

// TestEnded: a probe of a process tells that it has ended, whoever has its number then, and has
// what was counted.
func TestEnded(t *testing.T) {
	child := exec.Command("sh", "-c", "read line")
	in, err := child.StdinPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p := begin(t, Sched, Options{PID: child.Process.Pid})
	select {
	case <-p.Ended():
		t.Error("it has not ended")
	default:
	}
	if err := in.Close(); err != nil { // which the shell is woken by
		t.Fatal(err)
	}
	select {
	case <-p.Ended():
	case <-time.After(time.Minute):
		t.Fatal("nothing tells of the end")
	}
	_ = child.Wait() // its status is that of a read without a line
	if r, err := p.Read(); err != nil || r.Completed == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if all := begin(t, Sched, Options{}); all.Ended() != nil {
		t.Error("all processes have no end")
	}
}
