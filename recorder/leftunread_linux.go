package recorder

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tallywheel/tallywheel/internal/isolate"
)

// leftUnread counts what waits of a source whose reader did not come to its end, and has a stop
// fail: the reader may still have something in its hands that nobody knows of.
func (p *port) leftUnread() {
	cause := badReader
	if p.remote.untold.Load() {
		cause = badKeeper
	}
	p.lane.endsBadly(cause) // before what is counted is saved
	n, known := uint64(0), true
	if _, ok := p.opener.(*seat); ok {
		n = p.unseated()
	} else if n, known = p.remote.iso.waits(p.lane.cfg.ID); n > 0 {
		p.lane.unread(unreadStopped, n)
	}
	why := cause + ": what it had not read is not counted"
	if known {
		why = fmt.Sprintf("%s: %d bytes that it had not read are lost", cause, n)
	}
	p.log.Error(why)
	p.lane.uncounted(time.Now().UnixNano(), why)
}

// lacks notes that the reader does not hear of a source, for the keeper could not take it.
func (i *isolation) lacks(source string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, rm := range i.remotes {
		if rm.lane.cfg.ID == source {
			rm.untold.Store(true)
		}
	}
}

// keeperCounts is how long the keeper may take to say what waits of a source.
const keeperCounts = 2 * time.Second

// waits is how many bytes of a source wait that its reader, which stands still, has not read, by
// what the keeper finds. false: it does not say.
func (i *isolation) waits(source string) (n uint64, known bool) {
	answer := make(chan uint64, 1)
	i.told.Lock()
	i.asked[source] = answer
	i.told.Unlock()
	defer func() {
		i.told.Lock()
		defer i.told.Unlock()
		delete(i.asked, source)
	}()
	if err := i.link.Waits(source); err != nil {
		return 0, false
	}
	late := time.NewTimer(keeperCounts)
	defer late.Stop()
	select {
	case n = <-answer:
		return n, true
	case <-i.gone:
	case <-late.C: // it stands still, or is of an older program
	}
	return 0, false
}

// hearWaits passes on what the keeper says to waits.
func (i *isolation) hearWaits(e isolate.Entry) {
	var n uint64
	if err := json.Unmarshal(e.Data, &n); err != nil {
		i.log.Error("what the keeper says of what waits cannot be read", "source", e.Name, "error", err)
		return
	}
	i.told.Lock()
	answer := i.asked[e.Name]
	i.told.Unlock()
	select {
	case answer <- n: // a nil channel takes nothing
	default:
	}
}
