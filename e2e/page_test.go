package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

// beat sends frames into a port until the test ends. Each number in lose makes it leave out that
// many frames.
func beat(t *testing.T, port *serialtest.Port, device uint32, lose *atomic.Int64) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		var seq uint64
		var f [tally128.Size]byte
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			seq += uint64(lose.Swap(0))
			tally128.Encode(f[:],
				tally128.Header{Device: device, Epoch: 1, Seq: seq, DeviceTime: time.Now().UnixNano()}, nil)
			// the reader is not there yet, or gone: try the same frame again
			if n, err := port.Write(f[:]); err != nil || n == 0 {
				continue
			} else if n != len(f) {
				t.Errorf("the pty took %d of %d bytes", n, len(f))
			}
			seq++
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
		port.Close()
	})
}

// threePorts is a recorder of line-1 to line-3, which beat; each leaves out as many numbers as lose
// has for it.
func threePorts(t *testing.T) (r *recorder, lose *[3]atomic.Int64) {
	t.Helper()
	dir, sources := t.TempDir(), ""
	lose = new([3]atomic.Int64)
	for i := range lose {
		port, err := serialtest.NewPort(filepath.Join(dir, fmt.Sprintf("line-%d", i+1)))
		if err != nil {
			t.Fatal(err)
		}
		beat(t, port, uint32(i), &lose[i])
		sources += serialSource(fmt.Sprintf("line-%d", i+1), port.Link)
	}
	return startRecorder(t, dir, sources), lose
}

// TestPageShowsPortsAndTurnsOnLoss: a browser sees the ports, the charts move, and an injected loss
// turns the verdict.
func TestPageShowsPortsAndTurnsOnLoss(t *testing.T) {
	b := startBrowser(t)
	r, lose := threePorts(t)
	b.view(1280, 900, "light")
	b.open(r.url)

	const verdict = `return document.getElementById("verdict").className + "|" + document.getElementById("verdict-text").textContent`
	testenv.Until(t, 20*time.Second, "the page shows three ports that record, and a good verdict", func() bool {
		ports := b.text(`return [...document.querySelectorAll("#rows tr")].map((r) => r.dataset.port + " " + r.cells[1].textContent).join(",")`)
		v := b.text(verdict)
		return ports == "line-1 open,line-2 open,line-3 open" &&
			strings.HasPrefix(v, "verdict good|nothing lost since ")
	})
	const chart = `const c = document.querySelector("#chart-rate canvas"); return c ? c.toDataURL() : ""`
	var before string
	testenv.Until(t, 20*time.Second, "the chart is drawn", func() bool { before = b.text(chart); return before != "" })
	testenv.Until(t, 20*time.Second, "the chart moves", func() bool { return b.text(chart) != before })

	lose[1].Store(7)
	testenv.Until(t, 20*time.Second, "the verdict turns", func() bool {
		v := b.text(verdict)
		return strings.HasPrefix(v, "verdict bad|lost since ") &&
			strings.Contains(v, ": 7 frames on the wire (7 never seen)")
	})
	if got := b.text(`return document.querySelector('[data-port="line-2"] td.hurt .value').textContent`); got != "7" {
		t.Errorf("the row of line-2 shows %s missing, want 7", got)
	}

	for _, theme := range []string{"light", "dark"} {
		for name, width := range map[string]int{"desktop": 1280, "phone": 390} {
			b.view(width, 900, theme)
			b.open(r.url)
			testenv.Until(t, 20*time.Second, "the page is filled",
				func() bool { return strings.Contains(b.text(verdict), ": 7 frames") && b.text(chart) != "" })
			var over int
			b.eval(`return document.documentElement.scrollWidth - window.innerWidth`, &over)
			if over > 0 {
				t.Errorf("%s, %s: the page is %d pixels too wide", name, theme, over)
			}
			b.picture(fmt.Sprintf("page-%s-%s.png", name, theme))
		}
	}
	if bad := b.errors(); len(bad) > 0 {
		t.Errorf("the console reports %v", bad)
	}
	r.stop(t)
}
