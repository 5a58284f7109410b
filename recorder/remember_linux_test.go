package recorder

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// What a source has lost otherwise than by what its spool brings again, as what was thrown away
// unread, is in a checkpoint once it is in a sheet on disk: a recorder that was killed right behind
// that sheet left it in no book.
func TestWhatASheetSaysOutlivesAKill(t *testing.T) {
	g, shelf, stop := startOnShelf(t, t.TempDir(), nil, all("plant", 2))
	defer stop()
	c := dialFrom(t, 2, shelf.address("plant"))
	defer c.Close()
	write(t, c, of(2, 0, 10))
	name := peer("plant", 2)
	stored(t, g, name, 10)
	var p *port
	for _, q := range g.snapshot() {
		if q.lane.cfg.ID == name {
			p = q
		}
	}
	rm := p.remote
	for what, post := range map[string]func(l *lane){
		"unread": func(l *lane) { l.unread(unreadStopped, 1000) },
		"what may be lost": func(l *lane) {
			l.uncounted(time.Now().UnixNano(), badReader)
			l.listens(time.Now().UnixNano())
		},
		"an outage": func(l *lane) {
			l.outage(time.Now().UnixNano(), "the reader cannot take it")
			l.listens(time.Now().UnixNano())
		},
		"a refusal": func(l *lane) { l.refuse(refusedDescriptors, 1, 100) },
	} {
		testenv.Until(t, time.Minute, "nothing waits to be saved", func() bool {
			g.iso.mu.Lock()
			defer g.iso.mu.Unlock()
			return rm.play.saveBoth() == nil && rm.play.due == nil && !p.lane.isTouched()
		})
		post(p.lane)
		if err := g.save(); err != nil {
			t.Fatal(err)
		}
		g.iso.mu.Lock()
		kept := rm.play.kept
		g.iso.mu.Unlock()
		next, err := newLane(p.lane.cfg, g.log, frameStream, wasteStream)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := next.inherit(kept); err != nil {
			t.Fatal(err)
		}
		sheet, err := archive.LoadStart(g.cfg.Log.Dir, g.slog)
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(sheet.Sheet.Ports, func(q ledger.Port) bool { return q.ID == name })
		on, knows := sheet.Sheet.Ports[at], next.sheet()
		if !reflect.DeepEqual(on.Unread, knows.Unread) || !reflect.DeepEqual(on.Refused, knows.Refused) ||
			on.OutageCount != knows.OutageCount {
			t.Errorf("%s: the sheet on disk has %v, %v, %d outages; a recorder behind a kill %v, %v, %d", what, on.Unread,
				on.Refused, on.OutageCount, knows.Unread, knows.Refused, knows.OutageCount)
		}
	}
	if p := portOf(g, name); p.Unread[unreadStopped] != 1000 || p.OutageCount < 2 ||
		p.Refused[refusedDescriptors] != 1 {
		t.Errorf("%+v", p)
	}
}
