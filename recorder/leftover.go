package recorder

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/ledger"
)

// A trouble whose beginning was told, and that holds while the recorder stops or is killed, is kept
// with the sheet: nobody can say then that it is over. The next start tells it again while it
// holds, or its end.

// open lists the troubles that were told, and whose end was not. began is when the start began, in
// ns since 1970.
func (h *herald) open(began int64) (all []archive.Trouble) {
	for _, k := range slices.Sorted(maps.Keys(h.matters)) {
		c := h.matters[k]
		of := slices.Concat(slices.Collect(maps.Values(c.open)), c.over)
		slices.SortFunc(of, func(a, b *episode) int {
			return cmp.Or(strings.Compare(a.source, b.source), cmp.Compare(a.since, b.since))
		})
		for _, e := range of {
			if e.begun || e.old {
				t := archive.Trouble{
					Kind: c.Kind, Level: c.Level, What: c.What, Source: e.source,
					Since: ledger.Time(began + int64(e.since)),
				}
				if e.count > 0 {
					t.Count, t.Unit, t.Last = e.count-e.from, c.Unit, ledger.Time(began+int64(e.last))
				}
				all = append(all, t)
			}
		}
	}
	return all
}

// adopt takes in what open of an earlier start has listed. Losses of that start are over; how long
// a state lasts shows.
func (h *herald) adopt(troubles []archive.Trouble, began int64) {
	for _, t := range troubles {
		e := &episode{source: t.Source, count: t.Count, old: true}
		e.since = min(0, time.Duration(int64(t.Since)-began)) // the clock may have been set
		if t.Count > 0 {
			e.last = min(0, max(e.since, time.Duration(int64(t.Last)-began)))
		}
		c := h.matter(ledger.Reason{Kind: t.Kind, Level: t.Level, What: t.What, Unit: t.Unit, Count: t.Count})
		if k := (bookKey{source: t.Source}); t.Count > 0 || c.open[k] != nil {
			c.over = append(c.over, e)
		} else {
			c.open[k] = e
		}
	}
}

// stillSilent notes sources that were silent when an earlier start ended, and have sent nothing
// since: that they are not called silent yet does not say that they send.
func (h *herald) stillSilent(s *ledger.Sheet, note func(ledger.Reason, string)) {
	c := h.matters[kindSilent]
	if c == nil {
		return
	}
	for i := range s.Ports {
		p := &s.Ports[i]
		if e := c.open[bookKey{source: p.ID}]; e != nil && e.old && !p.Heard {
			r := c.Reason
			r.Source = p.ID
			note(r, "")
		}
	}
}

// kindSilent is the rule about sources of which no frame has come for long.
const kindSilent = "silent"

// endLosses ends the losses of a recorder that has stopped: nothing more can be lost.
func (c *matter) endLosses() {
	for k, e := range c.open {
		if e.count > 0 {
			delete(c.open, k)
			c.over = append(c.over, e)
		}
	}
}

// leave says which troubles the recorder leaves.
func (h *herald) leave() {
	for _, k := range slices.Sorted(maps.Keys(h.matters)) {
		c := h.matters[k]
		if len(c.open) == 0 {
			continue
		}
		var sources []string
		for k := range c.open {
			if k.source != "" {
				sources = append(sources, k.source)
			}
		}
		slices.Sort(sources)
		attrs := []any{"trouble", c.Kind}
		if len(sources) > 0 {
			attrs = append(attrs, "sources", ledger.Some(sources))
		}
		h.log.Info("the recorder stops, and this is not over: "+c.What, attrs...)
	}
}
