package asyncfile

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// SyncWriter is what a file offers if it can write and make durable in one go: the uring backend,
// by a write linked to a sync in one system call.
type SyncWriter interface {
	// WriteSync is WriteAt and then Sync. n is the number of bytes written: all of them with an
	// error means that the sync failed, which is final as for Sync.
	WriteSync(b []byte, off int64) (n int, err error)
}

// ChainWriter is what a file offers if it can write many parts as a chain of linked operations: the
// uring backend. One larger write does the same in a third to a half of the time; a chain says
// which part failed.
type ChainWriter interface {
	// WriteChain writes parts one after the other from off, each by an operation of its own that
	// starts when the one before has ended, and syncs after the last if sync is set. A chain that
	// breaks is taken up again where it broke if the cause is passing (interrupted, again, short).
	// Otherwise the error is a [*ChainError]: the parts before are written, and nothing after is.
	// All of them written with an error means that the sync failed, which is final as for Sync.
	WriteChain(parts [][]byte, off int64, sync bool) (written int, err error)
}

// MaxChain is the most parts that one chain has; more are written as several.
const MaxChain = 64

// ChainError says which part of a chain failed.
type ChainError struct {
	Path   string
	Failed int   // index of the part; the number of parts if it was the sync
	Parts  int   // asked for
	Off    int64 // where the failed part was to go on
	Err    error
}

// Error is one line.
func (e *ChainError) Error() string {
	if e.Failed == e.Parts {
		return fmt.Sprintf("sync %s: %v", e.Path, e.Err)
	}
	return fmt.Sprintf("write %s: part %d of %d at %d: %v", e.Path, e.Failed, e.Parts, e.Off, e.Err)
}

// Unwrap returns the cause.
func (e *ChainError) Unwrap() error { return e.Err }

// ChainStats adds up chains, of any number of files that were opened with it in their Config. The
// zero value is ready, and safe for concurrent use.
type ChainStats struct {
	mu sync.Mutex
	c  ChainCounts
}

// ChainCounts is what became of chains.
type ChainCounts struct {
	Chains    uint64                   // written
	Whole     uint64                   // … of which all went well, taken up again or not
	Parts     uint64                   // asked for
	Written   uint64                   // … of which were written
	Breaks    uint64                   // times a chain broke and was taken up again
	Errors    map[syscall.Errno]uint64 // final failures by kind; 0 for errors that are none of the kernel's
	Failed    map[ChainFailure]uint64  // … and by the part that failed
	LastIndex int                      // index of the part that failed last; -1 if none did
}

// ChainFailure is how a chain failed, and at which of its parts: their number, if it was the sync.
type ChainFailure struct {
	Kind  syscall.Errno
	Index int // OtherParts: one that had no place any more
}

// How many different failures are told apart; beyond that the index is OtherParts.
const (
	maxFailures = 1024
	OtherParts  = -1
)

// failed counts a final failure.
func (c *ChainCounts) failed(kind syscall.Errno, index int) {
	if c.Errors == nil {
		c.Errors, c.Failed = map[syscall.Errno]uint64{}, map[ChainFailure]uint64{}
	}
	c.LastIndex = index
	c.Errors[kind]++
	at := ChainFailure{kind, index}
	if c.Failed[at] == 0 && len(c.Failed) >= maxFailures {
		at.Index = OtherParts
	}
	c.Failed[at]++
}

// add posts the outcome of one chain.
func (s *ChainStats) add(parts, written, breaks int, err error) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.c
	c.Chains++
	c.Parts += uint64(parts)
	c.Written += uint64(written)
	c.Breaks += uint64(breaks)
	if err == nil {
		c.Whole++
		return
	}
	var e syscall.Errno
	errors.As(err, &e)
	c.failed(e, written)
}

// Counts returns the sums so far.
func (s *ChainStats) Counts() ChainCounts {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.c
	c.Errors, c.Failed = maps.Clone(s.c.Errors), maps.Clone(s.c.Failed)
	if len(c.Errors) == 0 {
		c.LastIndex = -1
	}
	return c
}

// SuccessRate is the share of chains that went well, 0 to 1; 1 if there were none.
func (c ChainCounts) SuccessRate() float64 {
	if c.Chains == 0 {
		return 1
	}
	return float64(c.Whole) / float64(c.Chains)
}

// String is one line for a log.
func (c ChainCounts) String() string {
	kinds := make([]string, 0, len(c.Errors))
	for e, n := range c.Errors {
		kinds = append(kinds, fmt.Sprintf("%v ×%d at index %s", error(e), n, c.indexes(e)))
	}
	sort.Strings(kinds)
	line := fmt.Sprintf("%d of %d batches whole (%.2f %%), %d of %d parts, %d taken up again", c.Whole, c.Chains,
		100*c.SuccessRate(), c.Written, c.Parts, c.Breaks)
	if len(kinds) > 0 {
		line += fmt.Sprintf("; %s; last at index %d", strings.Join(kinds, ", "), c.LastIndex)
	}
	return line
}

// indexes lists the parts that failed for a kind of error, with how often: 0, 3 ×2.
func (c ChainCounts) indexes(kind syscall.Errno) string {
	var at []int
	for f := range c.Failed {
		if f.Kind == kind {
			at = append(at, f.Index)
		}
	}
	slices.Sort(at)
	all := make([]string, 0, len(at))
	for _, i := range at {
		text := strconv.Itoa(i)
		if i == OtherParts {
			text = "others"
		}
		if n := c.Failed[ChainFailure{kind, i}]; n > 1 {
			text += fmt.Sprintf(" ×%d", n)
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}
