package isolate

import (
	"errors"
	"sync"

	"github.com/tallywheel/tallywheel/ipc"
)

// What comes over a link waits in its inbox until Follow takes it. One goroutine fills it, from the
// shelf's end on until the keeper has ended, and does nothing else: it never waits for what this
// process sends. For the keeper holds its lock while it sends to a child, and hears neither of them
// then. If a child that is itself sending took nothing meanwhile, the two would wait for each
// other.

// inboxHolds is how many messages wait at most: far more than the keeper can have to say while a
// send takes its putWithin. Where so many wait, no more are taken, and a keeper that has one to
// send takes this process for dead.
const inboxHolds = 1 << 16

// inbox is what was received, and not taken yet, in its order.
type inbox struct {
	mu      sync.Mutex
	changed *sync.Cond
	waiting []received
}

// received is a message, or that there is no more.
type received struct {
	message
	fds []int
	err error // ipc.ErrFiles: it came without its descriptors; any other: the link is at its end
}

func newInbox() *inbox {
	b := &inbox{}
	b.changed = sync.NewCond(&b.mu)
	return b
}

// fill receives until the link is at its end. It ends with that, or stays where it waits for room
// that nobody makes: then this process is about to end.
func (b *inbox) fill(conn *ipc.Conn) {
	for {
		m, fds, err := receive(conn)
		if kind, _ := SourceOf(m.Name); m.Op == opPut && (kind == "port" || kind == "spill" || kind == "listener") {
			Entry{FDs: fds}.CloseFDs() // they are for whoever comes after a kill: none need wait here
			fds = nil
		}
		b.put(received{m, fds, err})
		if err != nil && !errors.Is(err, ipc.ErrFiles) {
			return
		}
	}
}

// put has a message wait behind all others, once there is room.
func (b *inbox) put(r received) {
	b.mu.Lock()
	for len(b.waiting) >= inboxHolds {
		b.changed.Wait()
	}
	b.waiting = append(b.waiting, r)
	b.mu.Unlock()
	b.changed.Broadcast()
}

// take takes the first of what waits, once there is something. An end stays: it is taken again.
func (b *inbox) take() received {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.waiting) == 0 {
		b.changed.Wait()
	}
	r := b.waiting[0]
	if r.err == nil || errors.Is(r.err, ipc.ErrFiles) {
		b.waiting[0] = received{}
		b.waiting = b.waiting[1:]
		b.changed.Broadcast()
	}
	return r
}
