package e2e

import (
	"regexp"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// TestPageLayout: what was lost stands first, on the wire and then by us; a port is a row of a
// table where there is room, and a card below 600 pixels; the time of day has its zone.
func TestPageLayout(t *testing.T) {
	b := startBrowser(t)
	dir := t.TempDir()
	r := startRecorder(t, dir, serialSource("line-1", dir+"/absent"))
	zoned := regexp.MustCompile(`^live · [0-9]{2}:[0-9]{2}:[0-9]{2} [+-][0-9]{2}:[0-9]{2}$`)
	for width, isRow := range map[int]bool{1440: true, 600: true, 599: false, 390: false} {
		b.view(width, 900, "light")
		b.open("about:blank")
		b.open(r.url)
		testenv.Until(t, 60*time.Second, "the page is filled", func() bool {
			return b.yes(filled) && b.yes(`return document.querySelectorAll("#rows tr").length === 1`)
		})
		if got := b.yes(`return getComputedStyle(document.querySelector("#rows tr")).display === "table-row"`); got != isRow {
			t.Errorf("at %d pixels a port is a row: %v", width, got)
		}
		if link := b.text(`return document.getElementById("link-text").textContent`); !zoned.MatchString(link) {
			t.Errorf("at %d pixels the time is %q, want it with its zone", width, link)
		}
	}
	const want = "Port|State|Lost on the wire|Lost by us"
	if got := b.text(`return [...document.querySelectorAll("#groups th")].slice(0, 4).map((e) => e.textContent).join("|")`); got != want {
		t.Errorf("the columns begin %q, want %q", got, want)
	}
}
