package forward

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/ledger"
)

// Forwarder brings a log that is recorded to all destinations of a configuration.
type Forwarder struct {
	all  []*destination
	slog *slog.Logger
	stop context.CancelFunc
	done sync.WaitGroup
	hub  *broker // the server within; nil: there is none

	patience time.Duration // of Finish
}

// Start begins to forward the records of a log that is open for writing, as the sections of cfg
// say. It waits for no destination. It returns nil where there is none.
func Start(cfg config.Config, in *archive.Archive, log *slog.Logger) *Forwarder {
	if len(cfg.Forward) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &Forwarder{slog: log, stop: cancel, patience: finishPatience}
	for _, c := range cfg.Forward {
		d := &destination{
			cfg: c, slog: log, in: in, log: in.Identity(), path: archive.ForwardMark(cfg.Log.Dir, c.Name),
			all:  map[laneKey]*lane{},
			last: make(chan struct{}),
		}
		var err error
		if d.mark, d.fresh, err = loadMark(d.path, d.log); err != nil {
			log.Warn("how far forwarding has come cannot be read", "destination", c.Name, "error", err)
		}
		d.book = ledger.Forwarding{
			Name: c.Name, To: c.To, Address: strings.Join(c.URLs, ", "), State: ledger.ForwardConnecting,
			Since:   ledger.Time(time.Now().UnixNano()),
			Through: min(d.mark.Through, in.Durable()),
		}
		d.hold, d.caught = d.mark.Settled+1, int64(d.book.Since)
		switch {
		case c.Embedded():
			f.hub = newBroker(c, archive.ForwardStore(cfg.Log.Dir), log)
			d.dial, d.book.Address = dialWithin(f.hub), c.Listen
		case c.To == "nats":
			d.dial = dialNATS
		default:
			d.dial = dialMQTT
		}
		f.all = append(f.all, d)
	}
	for _, d := range f.all {
		f.done.Go(func() { d.run(ctx) })
	}
	return f
}

// finishPatience is how long Finish waits for destinations, if nothing else is said.
const finishPatience = 2 * time.Second

// Finish brings what is durable now to the destinations that take it, for two seconds at most, and
// ends it. What is left is told, and sent by the next start. It is called once.
func (f *Forwarder) Finish() {
	for _, d := range f.all {
		close(d.last)
	}
	late := time.AfterFunc(f.patience, f.stop)
	defer late.Stop()
	f.done.Wait()
	f.Stop()
	for _, b := range f.Books() {
		if b.LagRecords > 0 {
			f.slog.Warn("not all of the log is forwarded: the next start goes on", "destination", b.Name,
				"lag_records", b.LagRecords, "lag_bytes", b.LagBytes, "through", b.Through, "state", b.State)
		}
	}
}

// Stop ends it. What has not been acknowledged is sent by the next start.
func (f *Forwarder) Stop() {
	f.stop()
	f.done.Wait()
	if f.hub != nil {
		f.hub.stop()
	}
}

// Books are the accounts of all destinations, not older than a second while frames go out.
func (f *Forwarder) Books() (all []ledger.Forwarding) {
	for _, d := range f.all {
		all = append(all, d.account())
	}
	return all
}

// Hold is the first record that must stay in the log: of those that a destination has not
// acknowledged, or not for ten minutes yet.
func (f *Forwarder) Hold() uint64 {
	hold := uint64(math.MaxUint64)
	for _, d := range f.all {
		d.mu.Lock()
		hold = min(hold, d.hold)
		d.mu.Unlock()
	}
	return hold
}
