package recorder

import (
	"slices"
	"strings"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/ledger"
)

// A source that is not read has a place and no port. Its outage begins when it was read last, which
// may be several starts ago: each sheet hands that on to the next start.

// tellAway says in a sheet since when the source of a place is not read, and why. One that waits
// for room has an account, with its outage. Recorder.mu is held.
func (r *Recorder) tellAway(s *archive.StartSheet, source string, at place) {
	waits := slices.ContainsFunc(r.postponedLanes, func(l *lane) bool { return l.cfg.ID == source })
	if at.why == "" || waits {
		return
	}
	if s.Away == nil {
		s.Away = map[string]archive.Absence{}
	}
	s.Away[source] = archive.Absence{Since: ledger.Time(at.at), Why: at.why, IsSet: at.isSet}
}

// after is the place, where a start has ended, of a source that was not read by then: its outage
// goes on. The zero Absence: it was read.
func (at place) after(away archive.Absence) place {
	if away.Why == "" {
		return at
	}
	ended, _, _ := strings.Cut(at.why, "; ") // what the log lost then is of those that were read
	at.at, at.why = min(at.at, int64(away.Since)), alsoFor(away.Why, ended)
	at.isSet = at.isSet || away.IsSet
	return at
}

// alsoFor is the cause of an outage that lasts for a further reason. Each is named once, however
// many starts it lasts.
func alsoFor(cause, further string) string {
	if slices.Contains(strings.Split(cause, outageThen), further) {
		return cause
	}
	return cause + outageThen + further
}

// areTakenOut says, of the sources that a start goes on from and that it does not have, why they
// are not read from now on. Peers are of their source.
func (r *Recorder) areTakenOut(configured []config.Source) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, at := range r.places {
		source, _, _ := strings.Cut(name, "/")
		isIn := slices.ContainsFunc(configured, func(s config.Source) bool { return s.ID == source })
		if !isIn && at.why != "" {
			at.why = alsoFor(at.why, outageTakenOut)
			r.places[name] = at
		}
	}
}
