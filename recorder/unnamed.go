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

// unnamedWatch knows whether the table of streams names the oldest and the newest record of earlier
// starts. What lies between is not read: a start must not wait for all of the log.
type unnamedWatch struct {
	mu     sync.Mutex
	end    uint64 // the last record of earlier starts
	first  uint64 // the log began there at the last look
	oldest []uint32
	newest []uint32
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
}

// account lists the stream numbers without a name, in order.
func (w *unnamedWatch) account() []uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := slices.Concat(w.oldest, w.newest)
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
