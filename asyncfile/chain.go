package asyncfile

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"syscall"
)

// SyncWriter is what a file offers if it can write and make durable in one go: the uring backend, by a write linked to a sync in
// one system call.
type SyncWriter interface {
	// WriteSync is WriteAt and then Sync. n bytes were written; err is that of the write or of the sync, and a failed sync
	// is final as for Sync.
	WriteSync(b []byte, off int64) (n int, err error)
}

// ChainWriter is what a file offers if it can write many parts as a chain of linked operations: the uring backend. One larger
// write does the same in a fifth of the time; a chain says which part failed.
type ChainWriter interface {
	// WriteChain writes parts one after the other from off, each by an operation of its own that starts when the one
	// before has ended, and syncs after the last if sync is set. A chain that breaks is taken up again where it broke if the
	// cause is passing (interrupted, again, short); otherwise the parts before are written, and nothing after is.
	WriteChain(parts [][]byte, off int64, sync bool) (ChainResult, error)
}

// MaxChain is the most parts that one chain has; more are written as several.
const MaxChain = 64

// ChainResult is what became of a chain.
type ChainResult struct {
	Parts   int  // asked for
	Written int  // parts written whole, from the first on
	Synced  bool // … and made durable
	Failed  int  // index of the part that failed, len(parts) if it was the sync; -1 if none did
	Breaks  int  // times the chain broke and was taken up again
}

// ChainStats adds up chains. Add and the rest are for one goroutine.
type ChainStats struct {
	Chains    uint64                   // written
	Whole     uint64                   // … of which all went well, breaks or not
	Parts     uint64                   // asked for
	Written   uint64                   // … of which were written
	Breaks    uint64                   // chains that broke and were taken up again
	Errors    map[syscall.Errno]uint64 // final failures by kind; 0 for errors that are none of the kernel's
	LastIndex int                      // index of the part that failed last; -1 if none did
}

// Add posts the outcome of one chain.
func (s *ChainStats) Add(r ChainResult, err error) {
	if s.Errors == nil {
		s.Errors, s.LastIndex = map[syscall.Errno]uint64{}, -1
	}
	s.Chains++
	s.Parts += uint64(r.Parts)
	s.Written += uint64(r.Written)
	s.Breaks += uint64(r.Breaks)
	if err == nil {
		s.Whole++
		return
	}
	s.LastIndex = r.Failed
	var e syscall.Errno
	errors.As(err, &e)
	s.Errors[e]++
}

// SuccessRate is the share of chains that went well, 0 to 1; 1 if there were none.
func (s *ChainStats) SuccessRate() float64 {
	if s.Chains == 0 {
		return 1
	}
	return float64(s.Whole) / float64(s.Chains)
}

// String is one line for a log.
func (s *ChainStats) String() string {
	kinds := make([]string, 0, len(s.Errors))
	for e, n := range s.Errors {
		kinds = append(kinds, fmt.Sprintf("%v ×%d", error(e), n))
	}
	sort.Strings(kinds)
	line := fmt.Sprintf("%d of %d batches whole (%.2f %%), %d of %d parts, %d taken up again", s.Whole, s.Chains, 100*s.SuccessRate(), s.Written, s.Parts, s.Breaks)
	if len(kinds) > 0 {
		line += fmt.Sprintf("; %s, last at index %d", strings.Join(kinds, ", "), s.LastIndex)
	}
	return line
}
