package recorder

import (
	"sync"

	"github.com/tallywheel/tallywheel/seglog"
)

// commits hands the newest commit to the settling goroutine.
type commits struct {
	mu   sync.Mutex
	last seglog.Commit
	news chan struct{}
}

func (c *commits) put(n seglog.Commit) {
	c.mu.Lock()
	if c.last.Err != nil {
		n.Err = c.last.Err
	}
	c.last = n
	c.mu.Unlock()
	c.again()
}

// again has the newest commit brought to the lanes once more.
func (c *commits) again() {
	select {
	case c.news <- struct{}{}:
	default: // it will be
	}
}

func (c *commits) get() seglog.Commit {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}
