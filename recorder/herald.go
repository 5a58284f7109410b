package recorder

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/recorder/notify"
)

// Bounds of what is told.
const (
	tellPause = time.Minute // between two beginnings, two ends, or two lines of how it goes on, of one cause
	lossLull  = time.Minute // a loss is over when so long nothing more was lost
)

// herald tells the journal, and those who are notified, when a trouble begins and when it ends. It
// looks at a sheet once a second, on the goroutine of the tick: nothing that records knows of it.
//
// A trouble is a reason of the verdict. Those of one cause are told together, with their sources:
// one line when they begin, one when they end, and while losses go on one of how many, each at most
// once a minute. Sources that begin within that minute are in the next line; those that also end in
// it are only counted.
type herald struct {
	log     *slog.Logger
	tell    func(notify.Event)
	host    string
	matters map[string]*matter
	ports   map[string]uint64   // outages of each source at the last look
	hubs    map[bookKey]bookKey // the book of the source of each peer that was there then
}

// matter is all troubles of one cause.
type matter struct {
	ledger.Reason // of the one seen last; Source and Count mean nothing
	counts        map[bookKey]uint64
	// of a loss by its book; of a state, and of an earlier start, by the source alone
	open       map[bookKey]*episode
	over       []*episode    // ended, and not told yet
	brief      []*episode    // ended before anybody was told
	begin, end time.Duration // of the last line of that kind; 0: there was none
	more       time.Duration
}

// episode is one trouble of one source.
type episode struct {
	source     string
	why        string
	since      time.Duration
	last       time.Duration // when it was seen last, or when its count grew last
	from, told uint64        // the count when it began, and when it was told last
	count      uint64
	begun      bool // its beginning was told
	old        bool // … by an earlier start
}

func newHerald(log *slog.Logger, tell func(notify.Event)) *herald {
	host, _ := os.Hostname() // "" says as much
	return &herald{log: log, tell: tell, host: host, matters: map[string]*matter{}, ports: map[string]uint64{}}
}

// quietKinds are reasons that are no trouble: what a source is, or not yet.
var quietKinds = map[string]bool{"unknown": true, "unheard": true, "clock_steps": true}

// pastKinds are reasons that earlier starts have left: they hold until somebody says `ack`.
var pastKinds = map[string]bool{"earlier_starts": true, "history_unreadable": true}

// stateKinds are reasons that have a count and are no loss: they hold until something is mended.
var stateKinds = map[string]bool{"log_damaged": true}

// look tells what has changed. now is a time that nobody sets, since the start. With last the
// recorder has stopped: troubles begin, but only losses end. A source that is not there then is
// told of only if it has gone since the look before.
func (h *herald) look(s *ledger.Sheet, now time.Duration, last bool) {
	seen := map[*matter]map[bookKey]bool{}
	h.carry(s.Ports, s.Leaving)
	h.hubs = hubsOf(s.Ports)
	books := booksOf(s.Ports)
	note := func(r ledger.Reason, why string) {
		c, k := h.matter(r), keyOf(r, books)
		if seen[c] == nil {
			seen[c] = map[bookKey]bool{}
		}
		seen[c][k] = true
		c.note(r, k, why, now)
	}
	for _, r := range s.Whole().Judge().Reasons {
		if stateKinds[r.Kind] {
			r.Count, r.Unit, r.What = 0, "", r.Text
		}
		if !quietKinds[r.Kind] && !(last && r.Kind == "not_there") {
			note(r, why(s, r))
		}
	}
	for _, r := range s.Judge().Reasons {
		if pastKinds[r.Kind] {
			note(r, "")
		}
	}
	for _, r := range h.clockSteps(s) {
		note(r, fmt.Sprintf("by %v", time.Duration(s.Clock.Steps[len(s.Clock.Steps)-1].By)))
	}
	for _, r := range h.flaps(s, last) {
		note(r, why(s, r))
	}
	if last {
		h.areBack(s)
	}
	h.stillSilent(s, note)
	books = booksOf(s.Leaving)
	for _, r := range lossesOf(s.Leaving) {
		note(r, "")
	}
	for _, k := range slices.Sorted(maps.Keys(h.matters)) {
		c := h.matters[k]
		if last {
			h.announce(c, now, true)
			c.endLosses()
		} else {
			c.endThose(seen[c], now)
		}
		h.announce(c, now, last)
	}
	if last {
		h.leave()
	}
}

// close takes in the last accounts of a source that has left and its peers: the next look tells
// what they had lost.
func (h *herald) close(ports []ledger.Port, now time.Duration) {
	h.carry(ports)
	books := booksOf(ports)
	for _, r := range lossesOf(ports) {
		h.matter(r).note(r, keyOf(r, books), "", now)
	}
}

// carry sees to peers that are gone: what they had counted, and may have been told, is in the book
// of their source now, where that is among the accounts.
func (h *herald) carry(accounts ...[]ledger.Port) {
	if len(h.hubs) == 0 {
		return
	}
	there := map[bookKey]bool{}
	for _, ports := range accounts {
		for i := range ports {
			there[bookKey{ports[i].ID, ports[i].Book}] = true
		}
	}
	for peer, hub := range h.hubs {
		if there[peer] || !there[hub] {
			continue
		}
		delete(h.hubs, peer)
		for _, c := range h.matters {
			if n := c.counts[peer]; n > 0 {
				c.counts[hub] += n
				delete(c.counts, peer)
			}
		}
	}
}

// hubsOf is the book of the source of each peer; nil: there are no peers.
func hubsOf(ports []ledger.Port) (hubs map[bookKey]bookKey) {
	for i := range ports {
		p := &ports[i]
		if p.Hub == 0 {
			continue
		}
		if hubs == nil {
			hubs = map[bookKey]bookKey{}
		}
		source, _, _ := strings.Cut(p.ID, "/")
		hubs[bookKey{p.ID, p.Book}] = bookKey{source, p.Hub}
	}
	return hubs
}

// lossesOf is the reasons with a count that the accounts of sources that leave have: their state is
// of no more interest.
func lossesOf(ports []ledger.Port) []ledger.Reason {
	s := ledger.Sheet{Ports: ports}
	return slices.DeleteFunc(s.Judge().Reasons,
		func(r ledger.Reason) bool { return r.Count == 0 || quietKinds[r.Kind] })
}

// booksOf is which book each account is of.
func booksOf(ports []ledger.Port) map[string]uint64 {
	books := make(map[string]uint64, len(ports))
	for i := range ports {
		books[ports[i].ID] = ports[i].Book
	}
	return books
}

// keyOf is what a trouble is known by: two books of a source count by themselves.
func keyOf(r ledger.Reason, books map[string]uint64) bookKey {
	if r.Count == 0 {
		return bookKey{source: r.Source}
	}
	return bookKey{r.Source, books[r.Source]}
}

func (h *herald) matter(r ledger.Reason) *matter {
	key := r.Kind
	if r.Count > 0 { // a state has one cause, whatever its words
		key += " " + r.What
	}
	c := h.matters[key]
	if c == nil {
		c = &matter{counts: map[bookKey]uint64{}, open: map[bookKey]*episode{}}
		h.matters[key] = c
	}
	c.Reason = r
	return c
}

// note takes in that a source has the trouble, or has counted so much of it.
func (c *matter) note(r ledger.Reason, k bookKey, why string, now time.Duration) {
	before := c.counts[k]
	if r.Count > 0 {
		c.counts[k] = r.Count
		if r.Count <= before { // it has not grown; a late frame can take some back
			return
		}
	}
	e := c.open[k]
	if e == nil {
		e = &episode{source: r.Source, since: now, from: before, told: before}
		c.open[k] = e
	}
	e.last, e.count, e.why = now, r.Count, why
}

// endThose ends the troubles that are over.
func (c *matter) endThose(seen map[bookKey]bool, now time.Duration) {
	for k := range c.counts {
		if !seen[k] {
			delete(c.counts, k)
		}
	}
	for k, e := range c.open {
		if e.count > 0 && now-e.last < lossLull || e.count == 0 && seen[k] {
			continue
		}
		if e.count == 0 { // it ended between the last look and this one
			e.last = now
		}
		c.close(k)
	}
}

// close ends a trouble, if it is open.
func (c *matter) close(k bookKey) {
	e := c.open[k]
	switch delete(c.open, k); {
	case e == nil:
	case e.begun || e.old:
		c.over = append(c.over, e)
	default:
		c.brief = append(c.brief, e)
	}
}

// announce tells of a cause what is due, or with all what there is.
func (h *herald) announce(c *matter, now time.Duration, all bool) {
	due := func(last time.Duration) bool { return all || last == 0 || now-last >= tellPause }
	var fresh, going []*episode
	for _, e := range c.open {
		if !e.begun && e.old && e.last <= 0 {
			continue // this start has not seen it
		} else if !e.begun {
			fresh = append(fresh, e)
		} else if e.count > e.told {
			going = append(going, e)
		}
	}
	if (len(fresh) > 0 || len(c.brief) > 0) && due(c.begin) {
		for _, e := range fresh {
			e.begun = true
		}
		if c.begin = now; len(fresh) > 0 {
			h.line("begin", c, fresh, "")
		} else {
			h.line("brief", c, c.brief, "")
		}
		c.brief = nil
	} else if len(going) > 0 && due(max(c.begin, c.more)) {
		c.more = now
		h.line("more", c, going, "")
	}
	if len(c.over) > 0 && due(c.end) {
		c.end = now
		var lasted time.Duration
		for _, e := range c.over {
			e.told = e.from // the end tells all
			lasted = max(lasted, e.last-e.since)
		}
		h.line("end", c, c.over, lasted.Round(time.Second).String())
		c.over = nil
	}
}

// advice is what to do, where that is not plain.
var advice = map[string]string{
	"few_descriptors": "what they send waits in the kernel: LimitNOFILE in the unit, or `ulimit -n` before the start, allows more; or end connections that are silent",
	"disk_full":       "make room: frames wait in the log's buffer (1 MiB, or a quarter of a segment); when that is full, what comes, and what waits in a source's, is lost, whatever `overflow` says, but for `spill`; all goes on by itself when there is room",
	"dropping_oldest": "what is removed is gone: make room, or copy what is to be kept; a lower log.keep says that less is wanted",
	kindLogFailed:     "see to the disk: the next start recovers the log",
	"log_damaged":     "the sheet has the places: bring the segment back from a copy, or keep what is whole by `log repair`, both with the recorder stopped",
	"log_stalled":     "frames wait, and `overflow` decides as their buffers fill: make room, or see to the disk",
	"unbalanced":      "keep the sheet and the log: this is an error of the recorder",
	"no_frame":        "compare baud rate and framing with the device's",

	"earlier_starts":     "`tallywheel log sheets` and the page say what was lost; once you know it, `tallywheel ack` says so",
	"history_unreadable": "once you have looked at sheets.ndjson, `tallywheel ack` says so",
}

// outcome is what has become of the data when a trouble is over, where that is not plain.
var outcome = map[string]string{
	"disk_full":       "the log takes frames again; `dropped` of the sheet says what was lost, if anything was",
	"few_descriptors": "all connections are read, with what waited",
	kindLogFailed:     "the log takes frames again; what came meanwhile is not recorded",
	"dropping_oldest": "nothing more is removed early; what was removed is gone, and readers see a gap",
	"earlier_starts":  "it is acknowledged",
}

// line writes one line into the journal, and sends one event of a beginning or an end.
func (h *herald) line(what string, c *matter, of []*episode, lasted string) {
	slices.SortFunc(of, func(a, b *episode) int {
		return cmp.Or(cmp.Compare(b.count-b.told, a.count-a.told), strings.Compare(a.source, b.source))
	})
	e := notify.Event{
		Event: what, Trouble: c.Kind, Level: string(c.Level), Unit: c.Unit, At: time.Now(), Host: h.host,
		Sources: []string{},
	}
	var whys []string
	for _, p := range of {
		if p.source != "" && !slices.Contains(e.Sources, p.source) { // two of its books may have it
			e.Sources = append(e.Sources, p.source)
		}
		if w := strings.TrimPrefix(p.source+": "+p.why, ": "); p.why != "" && len(whys) < 4 &&
			!slices.Contains(whys, w) {
			whys = append(whys, w)
		}
		e.Count += p.count - p.told
		p.told = p.count
	}
	e.Text = c.What
	if e.Count > 0 {
		e.Text = fmt.Sprintf("%d %s %s", e.Count, c.Unit, c.What)
		if e.Count > 1 {
			e.Text = fmt.Sprintf("%d %ss %s", e.Count, c.Unit, c.What)
		}
	}
	attrs := []any{"trouble", c.Kind}
	if len(e.Sources) > 0 {
		attrs = append(attrs, "sources", ledger.Some(e.Sources))
	}
	if len(whys) > 0 && what != "end" {
		attrs = append(attrs, "why", strings.Join(whys, "; "))
	}
	if do := advice[c.Kind]; do != "" && what == "begin" {
		attrs = append(attrs, "do", do)
	}
	if n := len(c.brief); n > 0 && what == "begin" {
		attrs = append(attrs, "more_that_were_brief", n)
	}
	switch what {
	case "begin":
		h.log.Warn("begins: "+e.Text, attrs...)
	case "brief": // all is over: no event, for nothing is open that an end would follow
		h.log.Warn("came and went: "+e.Text, append(attrs, "times", len(of))...)
		return
	case "more":
		h.log.Warn("goes on: "+e.Text, attrs...)
		return
	case "end":
		attrs = append(attrs, "lasted", lasted)
		if now := outcome[c.Kind]; now != "" {
			attrs = append(attrs, "now", now)
		}
		h.log.Info("over: "+e.Text, attrs...)
		d, _ := time.ParseDuration(lasted) // it was printed by Duration
		e.Seconds = d.Seconds()
	}
	h.tell(e)
}

// why says more of a trouble than its kind: how it began, and what it is now.
func why(s *ledger.Sheet, r ledger.Reason) string {
	if r.Kind != "not_there" {
		return ""
	}
	for i := range s.Ports {
		if p := &s.Ports[i]; p.ID == r.Source && len(p.Outages) > 0 {
			began := p.Outages[len(p.Outages)-1].Cause
			if o := outageOf(p); o != nil {
				began = o.Cause
			}
			if p.Why == "" || p.Why == outageNotConnected || strings.HasSuffix(began, p.Why) {
				return began
			}
			return began + "; now: " + p.Why
		}
	}
	return ""
}

// clockSteps is how often the clock was set, whether or not a time service did.
func (h *herald) clockSteps(s *ledger.Sheet) []ledger.Reason {
	c := s.Clock
	if c == nil || c.StepCount == 0 {
		return nil
	}
	return []ledger.Reason{{
		Level: ledger.Watch, Kind: "clock_steps", Count: c.StepCount, Unit: "clock step",
		What: "(times before and behind do not compare)",
	}}
}

// flaps is sources that were gone since the last look, and are back; with last, also those that are
// not. One that is there, and is not read for want of room, is gone as long as that lasts.
func (h *herald) flaps(s *ledger.Sheet, last bool) (all []ledger.Reason) {
	now := make(map[string]uint64, len(s.Ports))
	for _, p := range s.Ports {
		before, known := h.ports[p.ID]
		now[p.ID] = p.OutageCount
		if known && p.OutageCount > before && (last || p.State != ledger.StateWaiting) ||
			p.State != ledger.StateWaiting && outageOf(&p) != nil {
			all = append(all, ledger.Reason{Level: ledger.Watch, Source: p.ID, Kind: "not_there", What: "not there"})
		}
	}
	h.ports = now
	return all
}

// outageOf is the newest outage of a source that is not over; nil: there is none.
func outageOf(p *ledger.Port) *ledger.Outage {
	for i := len(p.Outages) - 1; i >= 0; i-- {
		if p.Outages[i].To == 0 {
			return &p.Outages[i]
		}
	}
	return nil
}

// areBack ends the absence of sources whose last outage is over when the recorder has stopped.
func (h *herald) areBack(s *ledger.Sheet) {
	for i := range s.Ports {
		p, c := &s.Ports[i], h.matters["not_there"]
		if c == nil || p.State == ledger.StateWaiting || len(p.Outages) == 0 || outageOf(p) != nil {
			continue // it is not there, or nobody knows
		}
		c.close(bookKey{source: p.ID})
	}
}
