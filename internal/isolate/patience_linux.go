package isolate

import (
	"errors"
	"os"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/ipc"
)

// patience is how the keeper waits for what a child is to do. That is by time: a process that hangs
// does not end, so no pidfd tells of it. But one that waits for a CPU does not hang. What it waits
// for that does not count, within a bound.
type patience struct {
	pid    int
	waited time.Duration // for a CPU, when the wait began, or was given more time
	spare  time.Duration // what is left of the bound
}

const (
	starvesIn   = 10 * time.Second       // how much longer a child may take that waits for a CPU
	starvesLook = 100 * time.Millisecond // … and the least that counts: threads of an idle machine wait a little, too
	starveTries = 10                     // how often what a child has not taken is sent again
)

// more is how much longer a child may take whose time is over; now is for how long it has waited
// for a CPU in its life.
func (p *patience) more(now time.Duration) time.Duration {
	d := min(now-p.waited, p.spare)
	if d < starvesLook {
		return 0
	}
	p.waited, p.spare = now, p.spare-d
	return d
}

// sendTo is send to a child, which may wait for a CPU before it can take the message.
func sendTo(c *child, m message, fds []int) error {
	return sendStarving(sendWithin, c.conn, m, fds, func() time.Duration { return sys.CPUWait(c.PID) })
}

// sendStarving is sendTo; waited is for how long the child has waited for a CPU in its life.
func sendStarving(within time.Duration, conn *ipc.Conn, m message, fds []int, waited func() time.Duration) error {
	err := sendIn(within, conn, m, fds)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	p := patience{waited: waited(), spare: starvesIn}
	for range starveTries {
		if err = sendIn(starvesIn/starveTries, conn, m, fds); !errors.Is(err, os.ErrDeadlineExceeded) ||
			p.more(waited()) == 0 {
			break
		}
	}
	return err
}
