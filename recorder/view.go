package recorder

import (
	"slices"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/hist"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/recorder/notify"
	"github.com/tallywheel/tallywheel/seglog"
)

// What others may look at while it records. Nothing here waits for the log or a device.

// Config is the configuration that is recorded by, with its defaults.
func (r *Recorder) Config() config.Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.cfg
	c.Sources = slices.Clone(c.Sources)
	return c
}

// Archive is the log that is written.
func (r *Recorder) Archive() *archive.Archive { return archive.Live(r.log, r.streams) }

// Position is how far the log has come, and what keeps it.
func (r *Recorder) Position() seglog.Position { return r.log.Position() }

// Samples are those of the last minutes, one a second.
func (r *Recorder) Samples() []Sample { return r.history.all() }

// NextSample is a channel that is closed when a sample comes.
func (r *Recorder) NextSample() <-chan struct{} { return r.history.next() }

// LastSample is the newest one; there is none in the first second.
func (r *Recorder) LastSample() (Sample, bool) { return r.history.last() }

// Syncs are the times of commits with their syncs.
func (r *Recorder) Syncs() *hist.Histogram { return r.syncs }

// Latencies are the times from read to stored, by source.
func (r *Recorder) Latencies() map[string]*hist.Histogram {
	all := map[string]*hist.Histogram{}
	for _, p := range r.snapshot() {
		all[p.lane.cfg.ID] = p.lane.out.latency
	}
	return all
}

// Notified is what became of the events of troubles, by who was told: webhook or command.
func (r *Recorder) Notified() map[string]notify.Counts { return r.teller.Counts() }

// Chains says what became of batches written as chains of linked operations; ok is false where none
// are.
func (r *Recorder) Chains() (c asyncfile.ChainCounts, ok bool) {
	return r.chains.Counts(), r.cfg.Log.Linked
}

// Clients is how many descriptors there are for clients of the API, who leave the others alone.
func (r *Recorder) Clients() int { return r.allotted.clients }

// PortInfo is what a source is and does.
type PortInfo struct {
	ID       string            `json:"id"`
	State    string            `json:"state"`
	Why      string            `json:"why"`  // what keeps it from being open now, or ""
	Kind     string            `json:"kind"` // serial, tcp or udp
	Address  string            `json:"address"`
	Device   string            `json:"device"` // what is open now
	Frame    string            `json:"frame"`
	Overflow string            `json:"overflow"`
	Settings map[string]string `json:"settings"` // optional settings and what the driver made of them
}

// Ports says what each source is and does.
func (r *Recorder) Ports() []PortInfo {
	out := []PortInfo{}
	for _, p := range r.snapshot() {
		out = append(out, p.lane.info())
	}
	for _, l := range r.postponed() {
		out = append(out, l.info())
	}
	return out
}

func (l *lane) info() PortInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := PortInfo{
		ID: l.cfg.ID, State: l.state, Frame: l.cfg.Frame.Kind, Overflow: l.cfg.Overflow, Device: l.path,
		Settings: l.accepted,
	}
	if l.state == ledger.StateWaiting {
		i.Why = l.why
	}
	switch c := l.cfg; {
	case c.Serial != nil:
		i.Kind, i.Address = "serial", c.Serial.Port
	case c.TCP != nil:
		i.Kind, i.Address = "tcp", c.TCP.Listen+c.TCP.Dial
	default:
		i.Kind, i.Address = "udp", c.UDP.Listen
	}
	return i
}

// openOutage is the outage in which the device is not there; nil: it is, or was until it was left.
func (l *lane) openOutage() *ledger.Outage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.in.book.OpenOutage()
}
