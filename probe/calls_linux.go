package probe

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/tallywheel/tallywheel/internal/sys"
)

const (
	calls     = Kind("system calls")
	callSlots = 512 // as in bpf/probe.c
)

// CountCalls counts the system calls by name of a running process, and of what it starts from now
// on, until result is called, which must be: once, later it returns [os.ErrClosed], wrapped. The
// process keeps its speed, but for some ten nanoseconds a call.
func CountCalls(pid int) (result func() (map[string]uint64, error), err error) {
	if err := isProcess(pid); err != nil {
		return nil, err
	}
	c, links, err := load(calls, nil)
	if err != nil {
		return nil, err
	}
	if err := c.Maps["callers"].Put(uint32(pid), uint8(1)); err != nil {
		c.Close()
		return nil, errors.Join(fmt.Errorf("probe: %w", err), closeAll(links))
	}
	var ended atomic.Bool
	return func() (map[string]uint64, error) {
		if ended.Swap(true) {
			return nil, fmt.Errorf("probe: read: %w", os.ErrClosed)
		}
		defer c.Close()
		n, err := sum(c.Maps["calls"], callSlots)
		if err := errors.Join(err, closeAll(links)); err != nil {
			return nil, err
		}
		named := map[string]uint64{}
		for nr, k := range n {
			if k > 0 {
				named[sys.CallName(uint64(nr))] += k
			}
		}
		return named, nil
	}, nil
}
