package recorder

import (
	"encoding/json"
	"reflect"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
)

// A source that gets another name by a reload, and keeps its device, goes on with the numbers of
// the source that had the device. Until something comes of it, its books know that (ledger's
// Book.Succeed), and so does the sheet: what the name itself had of its past may be of another
// device, and does not go over to the next name.

// wiring is what a source says of its device, whoever may connect to it.
type wiring struct {
	Serial *config.Serial `json:"serial,omitempty"`
	TCP    *config.Net    `json:"tcp,omitempty"`
	UDP    *config.Net    `json:"udp,omitempty"`
}

func wiringOf(s config.Source) wiring {
	w := wiring{s.Serial, s.TCP, s.UDP}
	if s.TCP != nil {
		tcp := *s.TCP
		tcp.Peers, tcp.MaxPeers = "", 0
		w.TCP = &tcp
	}
	return w
}

// sameDevice reports whether what is open for a may be read for b.
func sameDevice(a, b config.Source) bool {
	return a.TCP.All() == b.TCP.All() && // the one has many, the other takes one
		reflect.DeepEqual(wiringOf(a), wiringOf(b))
}

// formerOf is the one of ports that have stopped which had the device of s under another name; nil:
// none had. Who reads all connections has numbers for each of its peers: those begin anew. A port
// that the kernel chooses is another one each time, with whatever device.
func formerOf(s config.Source, stopped []*port) (former *port) {
	if s.TCP.All() || s.TCP.AnyPort() || s.UDP.AnyPort() {
		return nil
	}
	for _, p := range stopped {
		switch {
		case !sameDevice(p.lane.cfg, s):
		case p.lane.cfg.ID == s.ID: // it has kept its own
			return nil
		default:
			former = p // the last one
		}
	}
	return former
}

// former is the lane of formerOf; nil also where the log does not take what that one holds: after a
// kill the numbers of those frames would be known under the new name, and nobody would miss them.
// With another process that reads, the source waits for it before it begins: see founds.
func (r *Recorder) former(s config.Source, stopped []*port) *lane {
	p := formerOf(s, stopped)
	if p == nil || r.iso != nil {
		return nil
	}
	if r.empty([]*port{p}, leavePatience); !p.lane.isSettled() {
		return nil
	}
	return p.lane
}

// succession is what the books have got from those that had the device before, and go on with,
// unless something has come since.
func (l *lane) succession() (s archive.Succession) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.Positions = l.in.book.Succession(); len(s.Positions) > 0 {
		text, _ := json.Marshal(wiringOf(l.cfg)) // it has nothing that could fail
		s.Device = string(text)
	}
	return s
}

// succeeded is succession of the books before, for those that go on where these were. It says
// nothing where the source has another device now. mu is held.
func (l *lane) succeeded(s archive.Succession) {
	if len(s.Positions) == 0 {
		return
	}
	if text, _ := json.Marshal(wiringOf(l.cfg)); string(text) == s.Device {
		l.in.book.Inherit(s.Positions)
	}
}
