package e2e

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

// TestThreeClicksToTheLastLoss: who has never seen the page finds the last loss, the records around
// it, and its cause, in both widths.
func TestThreeClicksToTheLastLoss(t *testing.T) {
	b := startBrowser(t)
	axe := axe(t)
	r, lose := threePorts(t)
	b.view(1440, 900, "light")
	b.open(r.url)
	testenv.Until(t, 30*time.Second, "all ports record", func() bool {
		return b.yes(`return document.querySelectorAll("#rows .state.open").length === 3`) && b.text(level) == "good"
	})
	lose[0].Store(2)
	testenv.Until(t, 30*time.Second, "the first loss is listed", func() bool {
		return b.text(`return document.querySelector("#losses-list tbody tr")?.innerText ?? ""`) != ""
	})
	lose[1].Store(7)
	for _, width := range []int{1440, 390} {
		b.view(width, 900, "light")
		b.open(r.url)
		testenv.Until(t, 30*time.Second, "the last loss is the first of the list", func() bool {
			words := strings.Fields(b.text(`return document.querySelector("#losses-list tbody tr")?.innerText ?? ""`))
			return len(words) > 4 && strings.Join(words[2:], " ") == "line-2 7 frames never seen on the wire"
		})

		to := b.text(`return document.querySelector("#losses-list tbody a").hash`)
		b.click("#facts a") // the time of the last loss
		testenv.Until(t, 30*time.Second, "it leads to the records around that loss",
			func() bool { return b.text(`return location.hash`) == to })
		b.eval(`location.hash = "#/"; return null`, nil)
		testenv.Until(t, 30*time.Second, "the list is shown again",
			func() bool { return b.yes(`return !document.getElementById("view-overview").hidden`) })

		b.click("#losses-list tbody tr a") // the first click

		testenv.Until(t, 30*time.Second, "the records around it are shown", func() bool {
			return b.yes(`return document.querySelector("#records-list .here") !== null`)
		})
		if got := b.text(`return document.getElementById("port-name").textContent`); got != "line-2" {
			t.Errorf("it leads to port %s", got)
		}
		if got := b.text(`return document.getElementById("port-loss").innerText`); !strings.Contains(got,
			"7 frames never seen") || !strings.Contains(got, "cable") {
			t.Errorf("of its cause it says %q", got)
		}
		var numbers []float64
		b.eval(`const here = document.querySelector("#records-list .here"), of = (r) => Number(r.cells[2].lastChild.textContent.replaceAll(",", ""));
			return [of(here.previousElementSibling), of(here.nextElementSibling)]`, &numbers)
		if numbers[1]-numbers[0] != 8 {
			t.Errorf("between the records before and behind the loss, %v, are not 7 numbers", numbers)
		}
		gap := b.text(`return document.querySelector("#records-list .here").textContent`)
		if want := "missing: 7 frames, number "; !strings.Contains(gap, want) || !strings.Contains(gap, "cable") {
			t.Errorf("between them stands %q, want %s…, and what to do", gap, want)
		}
		if !b.yes(`const r = document.querySelector("#records-list .here").getBoundingClientRect(); return r.top >= 0 && r.bottom <= innerHeight`) {
			t.Error("the place of the loss is not in the window")
		}

		b.accessible(axe, fmt.Sprintf("a loss at %d px", width))
		b.picture(fmt.Sprintf("page-loss-%d.png", width))
		was := b.text(`return document.querySelector("#records-list tbody tr:not(.note)").cells[1].lastChild.textContent`)
		b.click("#records-older") // the second click: what came before
		testenv.Until(t, time.Minute, "older records are shown", func() bool {
			return b.text(`return document.querySelector("#records-list tbody tr:not(.note)").cells[1].lastChild.textContent`) != was
		})
		if !b.yes(`return document.querySelectorAll("#records-list .here").length === 1`) {
			t.Error("the place of the loss is not there any more")
		}

		b.click("#records-list .here + tr summary") // the third click: a whole record

		testenv.Until(t, time.Minute, "a record is shown", func() bool { // the browser tells of the click later
			return strings.HasPrefix(b.text(`return document.querySelector("#records-list .here + tr pre")?.textContent ?? ""`), "0000  a5 5a")
		})
	}
	if bad := b.errors(); len(bad) > 0 {
		t.Errorf("the console reports %v", bad)
	}
}

// TestPageFindsALossAmidOneRead: a read may bring more records of one moment than are shown around
// a loss at first; the gap is found among them all the same.
func TestPageFindsALossAmidOneRead(t *testing.T) {
	b := startBrowser(t)
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	r := startRecorder(t, t.TempDir(), fmt.Sprintf("  - {id: meter, udp: {listen: %q}, frame: tally128}\n", addr))
	c, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var read []byte
	for i := range uint64(300) {
		seq := i
		if i >= 200 {
			seq += 7
		}
		var f [tally128.Size]byte
		tally128.Encode(f[:], tally128.Header{Device: 1, Epoch: 1, Seq: seq}, nil)
		read = append(read, f[:]...)
	}
	testenv.Until(t, time.Minute, "the port is open", func() bool { return r.sheet(t).Ports[0].State == "open" })
	if _, err := c.Write(read); err != nil { // a datagram is one read
		t.Fatal(err)
	}
	b.view(1440, 900, "light")
	b.open(r.url)
	testenv.Until(t, time.Minute, "the loss is listed", func() bool {
		return b.yes(`return document.querySelector("#losses-list tbody a") !== null`)
	})
	b.click("#losses-list tbody a")
	testenv.Until(t, time.Minute, "the place of the loss is shown", func() bool {
		return b.yes(`return document.querySelector("#records-list .here") !== null`)
	})
	if got := b.text(`return document.querySelector("#records-list .here").textContent`); !strings.Contains(got,
		"missing: 7 frames, number 200 to 206") {
		t.Errorf("the place of the loss says %q", got)
	}
}

// TestPageFindsRecords: by contents as text and as digits, by sequence, and by time, page by page.
func TestPageFindsRecords(t *testing.T) {
	b := startBrowser(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := startRecorder(t, t.TempDir(), fmt.Sprintf("  - {id: meter, tcp: {dial: %q}, frame: line}\n", l.Addr()))
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const lines = 250
	for i := range lines {
		word := "value"
		if i == 177 {
			word = "alarm"
		}
		if _, err := fmt.Fprintf(c, "%s %d\r\n", word, i); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Until(t, 30*time.Second, "all lines are stored",
		func() bool { return r.sheet(t).Ports[0].Frames.Stored == lines })

	b.view(1440, 900, "light")
	b.open(r.url + "#/records?source=meter")
	const rows = `return [...document.querySelectorAll("#records-list tbody tr")].map((r) => r.cells[1].lastChild.textContent).join(" ")`
	testenv.Until(t, 30*time.Second, "the newest are shown", func() bool {
		all := strings.Fields(b.text(rows))
		return len(all) == 100 && all[99] == "250"
	})
	search := func(field, words string) {
		t.Helper()
		b.eval(`const f = document.getElementById("records-form"); for (const n of ["from", "to", "seq", "contains"]) f.elements[n].value = ""; return null`, nil)
		b.click("#records-form [name=" + field + "]")
		b.keys(words + "\ue007")
	}
	for words, marked := range map[string]string{"alarm 1": "alarm 1", "hex:616c61726d": "alarm"} {
		search("contains", words)
		// Both find the same record: only the mark tells whose answer is shown.
		testenv.Until(t, 30*time.Second, words+" is found and marked", func() bool {
			return b.text(rows) == "178" &&
				b.text(`return document.querySelector("#records-list mark")?.textContent ?? ""`) == marked
		})
		if got := b.text(`return document.querySelector("#records-list .bytes").textContent`); !strings.HasPrefix(got,
			"alarm 177") {
			t.Errorf("a line is shown as %q", got)
		}
	}
	search("seq", "120")
	testenv.Until(t, 30*time.Second, "the records from 120 on",
		func() bool { return strings.HasPrefix(b.text(rows), "120 121 ") })
	shows := func(what string, n int, first, last string) {
		t.Helper()
		testenv.Until(t, time.Minute, what, func() bool {
			all := strings.Fields(b.text(rows))
			return len(all) == n && all[0] == first && all[n-1] == last
		})
	}
	b.click("#records-newer")
	shows("and those behind them", 131, "120", "250")
	b.click("#records-older")
	shows("and those before them", 231, "20", "250")
	b.click("#records-older")
	shows("as far as the log goes", 250, "1", "250")
	if !b.yes(`return document.getElementById("records-older").hidden && document.getElementById("records-state").textContent.includes("the log begins here")`) {
		t.Error("older records are offered where the log begins")
	}
	back := func(field, words string) {
		t.Helper()
		b.click("#records-form [name=order][value=newest]")
		search(field, words)
	}
	back("contains", "value 1") // 1, 10 to 19, and 100 to 199 but the alarm
	shows("the newest of what was searched for", 100, "20", "200")
	b.click("#records-older")
	shows("and the others", 110, "2", "200")
	back("seq", "40")
	shows("the records up to 40", 40, "1", "40")
	b.click("#records-newer")
	shows("and those behind them", 140, "1", "140")
	b.click("#records-form [name=order][value=oldest]")
	var shown string
	b.eval(`return document.querySelectorAll("#records-list tbody time")[5].textContent`, &shown)
	search("from", shown) // a time as it is shown can be asked for
	testenv.Until(t, 30*time.Second, "the records from that time on", func() bool {
		first := b.text(`return document.querySelector("#records-list tbody time")?.textContent ?? ""`)
		return first == shown && b.text(`return document.getElementById("records-form").elements.seq.value`) == ""
	})
	if bad := b.errors(); len(bad) > 0 {
		t.Errorf("the console reports %v", bad)
	}
}

// TestPageAcknowledges: who knows what was lost says so on the page, with a note; the verdict
// counts from then on, and the list of losses stays.
func TestPageAcknowledges(t *testing.T) {
	b := startBrowser(t)
	dir := t.TempDir()
	port, err := serialtest.NewPort(filepath.Join(dir, "line-1"))
	if err != nil {
		t.Fatal(err)
	}
	var lose atomic.Int64
	beat(t, port, 1, &lose)
	r := startRecorder(t, dir, serialSource("line-1", port.Link))
	b.view(390, 844, "dark")
	b.open(r.url)
	testenv.Until(t, 30*time.Second, "nothing is lost", func() bool { return b.text(level) == "good" })
	if b.yes(`return !document.getElementById("ack").hidden`) {
		t.Error("there is nothing to acknowledge, and it is offered")
	}
	lose.Store(3)
	testenv.Until(t, 30*time.Second, "a loss is listed", func() bool {
		return b.text(level) == "bad" && b.yes(`return document.querySelectorAll("#losses-list tbody tr").length === 1`)
	})
	b.click("#ack summary")
	b.click("#ack-form [name=note]")
	b.keys("a cable\ue007")
	testenv.Until(t, 30*time.Second, "it is acknowledged", func() bool {
		return b.text(level) == "good" &&
			strings.Contains(b.text(`return document.getElementById("facts").innerText`), "a cable")
	})
	if !b.yes(`return document.getElementById("ack").hidden && document.querySelectorAll("#losses-list tbody tr").length === 1`) {
		t.Error("it is offered again, or the list has forgotten the loss")
	}
	if bad := b.errors(); len(bad) > 0 {
		t.Errorf("the console reports %v", bad)
	}
}
