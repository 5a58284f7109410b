package sys

import (
	"testing"
	"time"
)

// TestWaitBriefly: it waits as long as it is told, also where the kernel has no epoll_pwait2: a
// loop that waits again because nothing came would turn without end.
func TestWaitBriefly(t *testing.T) {
	for _, coarse := range []bool{false, true} {
		e, err := NewEpoll(1)
		if err != nil {
			t.Fatal(err)
		}
		e.coarse = coarse
		const d = 300 * time.Microsecond
		began := time.Now()
		if n, err := e.WaitBriefly(d); n != 0 || err != nil {
			t.Errorf("%d events of none: %v", n, err)
		}
		if took := time.Since(began); took < d {
			t.Errorf("coarse %v: it came back after %v, want %v", coarse, took, d)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}
