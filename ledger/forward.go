package ledger

import "fmt"

// States of a destination.
const (
	ForwardConnecting = "connecting" // for the first time
	ForwardOn         = "forwarding"
	ForwardDown       = "down"    // it does not take frames now, and is tried again
	ForwardStopped    = "stopped" // nothing is sent, or nothing of a source, until somebody acts: Why says what to do
)

// Forwarding is the account of one destination that frames go on to, since this start.
type Forwarding struct {
	Name       string `json:"name"`
	To         string `json:"to"` // nats or mqtt
	Address    string `json:"address"`
	State      string `json:"state"`
	Reason     string `json:"reason"` // why it is down or stopped, in one word; "": it is not
	Why        string `json:"why"`    // … in a sentence
	Since      Time   `json:"since"`  // of the state
	Reconnects uint64 `json:"reconnects"`
	// Through is the last record of the log up to which everything is acknowledged.
	Through    uint64 `json:"through"`
	LagRecords uint64 `json:"lag_records"` // of the log, durable and behind Through
	LagBytes   int64  `json:"lag_bytes"`   // of the log that they take, about
	// UpTo is until when everything that was read is acknowledged; null: all is.
	UpTo    Time            `json:"up_to"`
	Gone    uint64          `json:"gone"` // records that the log removed before they were forwarded, at most
	Holding bool            `json:"holding"`
	Sources []ForwardSource `json:"sources"`
}

// ForwardSource is the account of one source at a destination, in frames.
type ForwardSource struct {
	ID           string `json:"id"`
	Quarantine   bool   `json:"quarantine"`
	State        string `json:"state"` // forwarding or stopped
	Reason       string `json:"reason"`
	Why          string `json:"why"`
	Forwarded    uint64 `json:"forwarded"`    // sent, each once that was acknowledged once
	Acknowledged uint64 `json:"acknowledged"` // … and taken
	Bytes        uint64 `json:"bytes"`        // … of them
	Resent       uint64 `json:"resent"`       // … of them, which the destination had acknowledged before, and lost
	Refused      uint64 `json:"refused"`      // messages that were not taken
	Last         uint64 `json:"last"`         // last record of the log that is acknowledged
	Pending      uint64 `json:"pending"`      // read for it, and not acknowledged yet
}

// balance lists the laws that a destination's account breaks, of a log that is durable up to a
// record.
func (f *Forwarding) balance(durable uint64) (wrong []string) {
	if f.Through > durable {
		wrong = append(wrong, fmt.Sprintf("through ≤ durable: %d is more than %d", f.Through, durable))
	}
	for _, s := range f.Sources {
		if s.Acknowledged > s.Forwarded {
			wrong = append(wrong,
				fmt.Sprintf("%s: acknowledged ≤ forwarded: %d is more than %d", s.ID, s.Acknowledged, s.Forwarded))
		}
		if s.Last > durable {
			wrong = append(wrong, fmt.Sprintf("%s: last ≤ durable: %d is more than %d", s.ID, s.Last, durable))
		}
	}
	return wrong
}

// Forwards takes the accounts of destinations into the sheet, of a log that is durable up to a
// record.
func (s *Sheet) Forwards(all []Forwarding, durable uint64) {
	s.Forward = all
	for i := range all {
		for _, why := range all[i].balance(durable) {
			s.ForwardUnbalanced = append(s.ForwardUnbalanced, all[i].Name+": "+why)
		}
	}
	s.Balanced = s.Balanced && len(s.ForwardUnbalanced) == 0
}

// forwardRules are the rules about destinations.
var forwardRules = []sheetRule{
	{"forward_unbalanced", Bad, nil, func(s *Sheet) (all []find) {
		for _, why := range s.ForwardUnbalanced {
			all = append(all, when(true, "the books of a destination do not balance: %s", why)...)
		}
		return all
	}},
	{"forward_gone", Bad, nil, func(s *Sheet) (all []find) {
		for _, f := range s.Forward {
			all = append(all, counts(f.Gone, "record",
				"removed from the log before they were forwarded to "+f.Name+", at most")...)
		}
		return all
	}},
	{"forward_stopped", Watch, nil, func(s *Sheet) (all []find) {
		for _, f := range s.Forward {
			all = append(all, when(f.State == ForwardStopped, "forwarding to %s has stopped: %s", f.Name, f.Why)...)
			for _, of := range f.Sources {
				all = append(all,
					when(f.State != ForwardStopped && of.State == ForwardStopped, "forwarding %s to %s has stopped: %s",
						of.ID, f.Name, of.Why)...)
			}
		}
		return all
	}},
	{"forward_down", Watch, nil, func(s *Sheet) (all []find) {
		for _, f := range s.Forward {
			all = append(all, when(f.State == ForwardDown, "%s takes no frames now: %s", f.Name, f.Why)...)
		}
		return all
	}},
	{"forward_holds", Watch, nil, func(s *Sheet) (all []find) {
		for _, f := range s.Forward {
			all = append(all, when(f.Holding,
				"the log keeps more than log.keep says, for not all of it is forwarded to %s", f.Name)...)
		}
		return all
	}},
}
