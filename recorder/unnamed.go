package recorder

import (
	"errors"
	"slices"
	"sync"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/seglog"
)

// unnamedTries is how many gaps a look passes, at most, until it finds a record.
const unnamedTries = 16

// maxUnnamed is how many stream numbers without a name a sheet lists, at most.
const maxUnnamed = 100

// unnamedWatch knows whether the table of streams names the oldest and the newest record of earlier
// starts, and all numbers that the last sheet knows to be given. What lies between is not read: a
// start must not wait for all of the log.
type unnamedWatch struct {
	mu     sync.Mutex
	end    uint64 // the last record of earlier starts
	first  uint64 // the log began there at the last look
	oldest []uint32
	newest []uint32
	lacks  []archive.Run // the table had them once
	upTo   uint64        // … and records up to here may have them
}

// begin takes what the last sheet says of the numbers that the table had; nil: there is none. Where
// the table has not all of them it is older than the log, and gives none of them to another source.
// older: there is one, and no earlier start knew.
func (w *unnamedWatch) begin(log *seglog.Log, streams *archive.Streams, last *archive.StartSheet) (older bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end = log.Position().Stored
	if last == nil || last.Identity != hexIdentity(log) {
		return false
	}
	w.lacks, w.upTo = streams.Lacks(last.Unnamed), last.UnnamedUpTo
	if more := streams.Lacks(last.Streams); len(more) > 0 {
		w.lacks, w.upTo, older = append(w.lacks, more...), w.end, len(streams.All()) > 0
	}
	streams.GiveBehind(w.lacks)
	return older
}

// tell notes for the next start which numbers the table has, and had.
func (w *unnamedWatch) tell(s *archive.StartSheet, streams *archive.Streams) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.Streams = streams.Given(); len(w.lacks) > 0 {
		s.Unnamed, s.UnnamedUpTo = w.lacks, w.upTo
	}
}

// look looks at the newest record once, and at the oldest one where retention has gone on.
func (w *unnamedWatch) look(log *seglog.Log, streams *archive.Streams) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := log.Position()
	if w.end == 0 || at.First == w.first {
		return
	}
	if w.oldest = unnamedAt(log, streams, at.First, w.end); w.first == 0 {
		w.newest = unnamedAt(log, streams, w.end, w.end)
	}
	if w.first = at.First; at.First > w.end {
		w.newest = nil
	}
	if at.First > w.upTo {
		w.lacks = nil
	}
}

// account lists the stream numbers without a name, in order.
func (w *unnamedWatch) account() []uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := slices.Concat(w.oldest, w.newest)
	for _, r := range w.lacks {
		for n := r.From; len(all) < maxUnnamed && n-r.From <= r.To-r.From; n++ {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// unnamedAt is the stream of the first record that can be read between two, if it has no name. A
// record that cannot be read is told as damage.
func unnamedAt(log *seglog.Log, streams *archive.Streams, from, to uint64) []uint32 {
	r := log.NewReader(from)
	defer r.Close()
	for range unnamedTries {
		rec, err := r.Next()
		var gap *seglog.GapError
		if errors.As(err, &gap) {
			continue
		}
		if err != nil || rec.Seq > to {
			return nil
		}
		if _, ok := streams.By(rec.Stream); !ok {
			return []uint32{rec.Stream}
		}
		return nil
	}
	return nil
}
