package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

// flip changes a bit of a segment, at the first place from there on that has those bytes, and
// returns where. They are of a record: how many commit frames there are, and where, is a matter of
// time, and damage to one of those is another.
func flip(t *testing.T, path string, from int, bytesOf string) (at int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if at = strings.Index(string(b[from:]), bytesOf); at < 0 {
		t.Fatalf("%q is not in %s from %d on", bytesOf, path, from)
	}
	at += from
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{b[at] ^ 4}, int64(at)); err != nil {
		t.Fatal(err)
	}
	return at
}

// TestPageShowsDamage: a bit of what is stored changes. The page says where, how much, which
// records, since when and what to do, and leads to the records before it.
func TestPageShowsDamage(t *testing.T) {
	b := startBrowser(t)
	axe := axe(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	source := fmt.Sprintf("  - {id: meter, tcp: {dial: %q}, frame: line}\n", l.Addr())
	r := startRecorder(t, dir, source)
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const lines = 6000 // of 1 KB: more than a segment of 4 MiB
	for i := range lines {
		if i == 10 { // they are a batch of their own, before the one that is damaged
			testenv.Until(t, time.Minute, "the first lines are stored",
				func() bool { return r.sheet(t).Ports[0].Frames.Stored == 10 })
		}
		if _, err := fmt.Fprintf(c, "value %d %s\n", i, strings.Repeat("x", 1000)); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Until(t, time.Minute, "all lines are stored",
		func() bool { return r.sheet(t).Ports[0].Frames.Stored == lines })
	b.view(1440, 900, "light")
	b.open(r.url)
	testenv.Until(t, time.Minute, "the page is filled", func() bool { return b.yes(filled) })
	if b.yes(`return !document.getElementById("damage").hidden`) {
		t.Error("there is no damage, and the page shows some")
	}
	r.stop(t)
	segs, err := filepath.Glob(filepath.Join(dir, "data", "*.seg"))
	if err != nil || len(segs) < 2 {
		t.Fatalf("%v, %v; want two segments", segs, err)
	}
	flip(t, segs[0], 1_000_000, "xxxxxxxx")

	r = startRecorder(t, dir, source)
	testenv.Until(t, time.Minute, "the damage is found", func() bool { return r.sheet(t).LogDamage != nil })
	b.errors() // the browser may have told of the stop
	b.looks(r.url, "damage", "bad", axe)
	place := r.sheet(t).LogDamage.First[0]
	b.view(1440, 900, "light")
	b.open("about:blank")
	b.open(r.url)
	testenv.Until(t, time.Minute, "the damage is shown", func() bool {
		return b.yes(`return !document.getElementById("damage").hidden && document.querySelectorAll("#damage tbody tr").length === 1`)
	})
	said := b.text(`return document.getElementById("damage").innerText.replaceAll(",", "")`)
	for _, want := range []string{
		filepath.Base(segs[0]), "log repair", "Stop the recorder",
		fmt.Sprintf("%d to %d", place.From, place.To), " KB",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q: %s", want, said)
		}
	}
	if !b.yes(fmt.Sprintf(`return new Date(document.querySelector("#damage time").dateTime).getTime() === Math.floor(%d / 1e6)`, int64(place.Found))) {
		t.Error("it does not say since when")
	}
	b.click("#damage tbody a")
	testenv.Until(t, time.Minute, "the records before the damage are shown", func() bool {
		last := b.text(`return [...document.querySelectorAll("#records-list tbody tr")].at(-1)?.cells[2].lastChild.textContent ?? ""`)
		return strings.ReplaceAll(last, ",", "") == fmt.Sprint(place.From-1)
	})
	if bad := b.errors(); len(bad) > 0 {
		t.Errorf("the console reports %v", bad)
	}
}

// TestPageShowsDestinations: a broker does not answer. The page says which, and why nothing goes on
// to it.
func TestPageShowsDestinations(t *testing.T) {
	b := startBrowser(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	_ = l.Close() // nobody answers there
	r := startRecorder(t, t.TempDir(), fmt.Sprintf(`  - {id: meter, udp: {listen: "127.0.0.1:0"}, frame: line}
forward: [{to: nats, name: plant, urls: ["nats://%s"]}]
`, at))
	b.view(1440, 900, "light")
	b.open(r.url)
	testenv.Until(t, time.Minute, "the destination is shown as down", func() bool {
		return b.yes(`return document.querySelector("#forward tbody tr td.hurt")?.textContent.includes("down")`)
	})
	said := b.text(`return document.getElementById("forward").innerText`)
	for _, want := range []string{"plant", at, "0 of 1 destination", "nothing", "no servers available"} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q: %s", want, said)
		}
	}
	if !b.yes(`const row = document.querySelector("#forward tbody tr"); return row.cells[0].scope === "row" && row.cells.length === 6`) {
		t.Error("the row has no head, or not six cells")
	}
	if bad := b.errors(); len(bad) > 0 {
		t.Errorf("the console reports %v", bad)
	}
	r.stop(t)
}

// TestPageListsLossesOfEarlierStarts: a recorder is killed behind a loss. The page of the next one
// lists it, with the start that it is of, and leads to its records.
func TestPageListsLossesOfEarlierStarts(t *testing.T) {
	b := startBrowser(t)
	axe := axe(t)
	dir := t.TempDir()
	port, err := serialtest.NewPort(filepath.Join(dir, "line-1"))
	if err != nil {
		t.Fatal(err)
	}
	var lose atomic.Int64
	beat(t, port, 1, &lose)
	r := startRecorder(t, dir, serialSource("line-1", port.Link))
	testenv.Until(t, time.Minute, "it records", func() bool { return r.sheet(t).Ports[0].Frames.Stored > 0 })
	lose.Store(5)
	testenv.Until(t, time.Minute, "the loss is on disk", func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "data", "sheet.json"))
		return err == nil && strings.Contains(string(text), `"losses":[{"source":"line-1"`)
	})
	since := r.sheet(t).Since
	if err := r.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = r.Cmd.Wait() // killed

	r = startRecorder(t, dir, serialSource("line-1", port.Link))
	b.looks(r.url, "earlier losses", "bad", axe)
	for _, width := range []int{1440, 390} {
		b.view(width, 900, "light")
		b.open("about:blank")
		b.open(r.url)
		const earlier = `[...document.querySelectorAll("#losses-list tr.start")].find((r) => r.textContent.startsWith("in the start of"))`
		testenv.Until(t, time.Minute, "the loss of the start before is listed", func() bool {
			return strings.Contains(b.text(`return `+earlier+`?.nextElementSibling.innerText ?? ""`), "5 frames")
		})
		if !b.yes(fmt.Sprintf(`return new Date(%s.querySelector("time").dateTime).getTime() === Math.floor(%d / 1e6)`,
			earlier, int64(since))) {
			t.Error("it does not name the start")
		}
		b.eval(earlier+`.nextElementSibling.querySelector("a").id = "earlier"; return null`, nil)
		b.click("#earlier")
		testenv.Until(t, time.Minute, "its records are shown", func() bool {
			return strings.Contains(b.text(`return document.querySelector("#records-list .here")?.textContent ?? ""`),
				"missing: 5 frames")
		})
	}
	// Of what lasted over a step of the clock nobody knows how long that was; it was "0 ms".
	const back = `return import("/format.js").then((f) => f.duration(-3600000))`
	if text := b.text(back); text != "an unknown time: the clock was set back" {
		t.Errorf("an hour back lasted %q", text)
	}
	if bad := b.errors(); len(bad) > 0 {
		t.Errorf("the console reports %v", bad)
	}
}

// TestPageShowsTheLossAmongAbsentPorts: after a restart many ports wait for their devices. They are
// one row of the list, and what was lost before is still in sight.
func TestPageShowsTheLossAmongAbsentPorts(t *testing.T) {
	b := startBrowser(t)
	dir := t.TempDir()
	var ports []*serialtest.Port
	var lose [6]atomic.Int64
	sources := ""
	for i := range lose {
		port, err := serialtest.NewPort(filepath.Join(dir, fmt.Sprintf("line-%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, port)
		sources += serialSource(filepath.Base(port.Link), port.Link)
		if i == 0 {
			beat(t, port, 1, &lose[i])
		}
	}
	r := startRecorder(t, dir, sources)
	testenv.Until(t, time.Minute, "all are open, and it records", func() bool {
		s := r.sheet(t)
		return s.Ports[0].Frames.Stored > 0 &&
			!slices.ContainsFunc(s.Ports, func(p ledger.Port) bool { return p.State != ledger.StateOpen })
	})
	lose[0].Store(5)
	testenv.Until(t, time.Minute, "it is lost", func() bool { return r.sheet(t).Ports[0].Frames.Missing == 5 })
	r.stop(t)
	for _, p := range ports[1:] {
		if err := p.Unplug(); err != nil {
			t.Fatal(err)
		}
	}

	r = startRecorder(t, dir, sources)
	b.view(1440, 900, "light")
	b.open(r.url)
	testenv.Until(t, time.Minute, "the loss is listed, and what waits is one row", func() bool {
		rows := b.text(`return document.getElementById("losses-list").innerText`)
		return strings.Contains(rows, "5 frames") && strings.Contains(rows, "5 ports")
	})
}
