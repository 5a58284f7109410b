package archive

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/tallywheel/tallywheel/ledger"
)

// KeptLosses is how many entries of the list of losses a start leaves with its sheet: the newest.
const KeptLosses = 64

// pastStarts is of how many earlier starts, at most, PastLosses tells.
const pastStarts = 100

// Loss is something that was lost, or came damaged, in one go.
type Loss struct {
	ledger.Loss
	From     ledger.Time `json:"from"`      // when it was noticed first
	To       ledger.Time `json:"to"`        // … and last: as a rule, the time of the frame behind it
	Start    ledger.Time `json:"start"`     // when the earlier start began that it is of; null: the one that runs
	OtherLog bool        `json:"other_log"` // … which was on another log than the one of now
}

// PastLosses lists what the starts kept in dir had lost, the newest start last, each as long as its
// sheet says; more is how many entries they have not kept. identity is that of the log of now. owed
// are sheets that may not be in the history yet; the start that began at now is none of them. An
// error tells of a line that cannot be read; what could be read is good.
func PastLosses(dir, identity string, owed []*StartSheet, now ledger.Time) (all []Loss, more uint64, err error) {
	starts, _, err := LastStarts(dir, pastStarts)
	slices.Reverse(starts)
	for _, s := range owed {
		if !slices.ContainsFunc(starts, func(kept StartSheet) bool { return kept.sameStart(s) }) {
			starts = append(starts, *s)
		}
	}
	for i := range starts {
		s := &starts[i]
		if s.Part || s.Sheet.Since == now { // what a source had lost that left is in the list of its start
			continue
		}
		for _, source := range slices.Sorted(maps.Keys(s.Late)) {
			all, _ = TakeLate(all, source, s.Late[source])
		}
		for _, l := range s.losses() {
			l.Start, l.OtherLog = s.Sheet.Since, s.OnOtherLog(identity)
			all = append(all, l)
		}
		more += s.LossesBefore
	}
	return all, more, err
}

// TakeLate takes so many frames of a source that came late out of a list, the newest last: out of
// what the source lost last, then what its peers, or the source that it is a peer of, did. rest is
// how many are not in the list.
func TakeLate(list []Loss, source string, n uint64) (left []Loss, rest uint64) {
	root, _, _ := strings.Cut(source, "/")
	for _, isOf := range []func(id string) bool{
		func(id string) bool { return id == source },
		func(id string) bool { return Within(id, root) },
	} {
		for i := len(list) - 1; i >= 0 && n > 0; i-- {
			if l := &list[i]; l.MayCome() && isOf(l.Source) {
				late := min(n, l.N)
				l.N, n = l.N-late, n-late
			}
		}
	}
	return slices.DeleteFunc(list, func(l Loss) bool { return l.N == 0 }), n
}

// HasList reports whether the start has left a list of what it lost, though it may be empty.
func (s *StartSheet) HasList() bool {
	return len(s.Losses) > 0 || s.LossesBefore > 0 || s.Books != nil
}

// losses is the list that the start has left. Of one that has left none, as by a program before
// this, each cause is an entry, with the time of the last loss of its source.
func (s *StartSheet) losses() []Loss {
	if s.HasList() {
		return s.Losses
	}
	last := map[string]ledger.Time{}
	for _, p := range s.Sheet.Ports {
		last[p.ID] = p.LastLoss
	}
	var all []Loss
	for _, l := range s.Sheet.Losses() {
		all = append(all, Loss{Loss: l, From: s.Sheet.Since, To: max(s.Sheet.Since, last[l.Source])})
	}
	slices.SortStableFunc(all, func(a, b Loss) int { return cmp.Compare(a.To, b.To) })
	return all
}
