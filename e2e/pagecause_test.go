package e2e

import (
	"bytes"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

// lossesOf is the list of losses, the newest first.
func lossesOf(t *testing.T, r *recorder) (all []struct {
	N        uint64
	From, To string
},
) {
	t.Helper()
	var answer struct{ Losses json.RawMessage }
	if !r.get("api/v1/losses", &answer) {
		return nil
	}
	if err := json.Unmarshal(answer.Losses, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestPageTellsWhatIsMissingAndWhy: a gap of which some was seen corrupt names both causes; a loss
// that lasted has a way to its beginning; a port that sends nothing is called silent; and what is
// acknowledged says so, in the list and in the row of the port.
func TestPageTellsWhatIsMissingAndWhy(t *testing.T) {
	b := startBrowser(t)
	dir := t.TempDir()
	port, err := serialtest.NewPort(filepath.Join(dir, "line-1"))
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	r := startRecorder(t, dir, strings.Replace(serialSource("line-1", port.Link), "}\n", ", silent_after: 1s}\n", 1))
	b.view(1440, 900, "light")
	b.open(r.url)
	testenv.Until(t, time.Minute, "the port is open", func() bool {
		return b.yes(`return document.querySelector("#rows .state.open, #rows .state.silent") !== null`)
	})
	send := func(bad uint64, numbers ...uint64) {
		t.Helper()
		var all []byte
		for _, n := range numbers {
			f := make([]byte, tally128.Size)
			tally128.Encode(f, tally128.Header{Device: 7, Epoch: 1, Seq: n}, nil)
			if n == bad {
				f[100] ^= 1
			}
			all = append(all, f...)
		}
		if n, err := port.Write(all); err != nil || n != len(all) {
			t.Fatalf("the pty took %d of %d bytes: %v", n, len(all), err)
		}
	}
	send(13, 1, 2, 3, 13, 15, 16) // 4 to 14 are missing, 13 came damaged
	const rows = `return [...document.querySelectorAll("#losses-list tbody tr:not(.start)")].map((r) => r.innerText.replaceAll(/\s+/g, " ")).join("|")`
	testenv.Until(t, time.Minute, "both causes are listed", func() bool {
		got := b.text(rows)
		return strings.Contains(got, "10 frames never seen on the wire") &&
			strings.Contains(got, "1 frame seen corrupt on the wire")
	})
	b.click("#losses-list tbody tr:not(.start) a")
	testenv.Until(t, time.Minute, "the gap names both causes", func() bool {
		got := b.text(`return document.querySelector("#records-list .here")?.innerText ?? ""`)
		return strings.Contains(got, "missing: 11 frames, number 4 to 14 (") &&
			strings.Contains(got, "10 frames never seen") && strings.Contains(got, "1 frame seen corrupt") &&
			strings.Contains(got, "never seen: Numbers were skipped") &&
			strings.Contains(got, "seen corrupt: Damaged bytes")
	})

	next, lasted := uint64(17), false
	for !lasted {
		lost := r.status(t).LostWire.Frames
		next += 2
		send(0, next)
		testenv.Until(t, time.Minute, "one more is listed", func() bool {
			var n uint64
			for _, l := range lossesOf(t, r) {
				n += l.N
				lasted = lasted || l.From != l.To
			}
			return n > lost
		})
	}
	b.open("about:blank")
	b.open(r.url)
	testenv.Until(t, time.Minute, "the loss that lasted is listed", func() bool {
		return b.yes(`const a = document.querySelector('#losses-list a[href*="first="]'); if (a) a.id = "lasted"; return a !== null`)
	})
	b.click("#lasted")
	testenv.Until(t, time.Minute, "there is a way to its beginning", func() bool {
		return b.yes(`return document.querySelectorAll("#port-loss-when a").length === 1`)
	})
	to := b.text(`return document.querySelector("#records-list .here")?.innerText ?? ""`)
	b.click("#port-loss-when a")
	testenv.Until(t, time.Minute, "the other end of it is shown", func() bool {
		got := b.text(`return document.querySelector("#records-list .here")?.innerText ?? ""`)
		return got != to && strings.Contains(got, "missing: ")
	})

	b.open("about:blank")
	b.open(r.url)
	testenv.Until(t, time.Minute, "the port is silent", func() bool {
		return b.text(`return document.querySelector("#rows .state.silent")?.innerText ?? ""`) == "silent"
	})
	resp, err := http.Post(r.url+"api/v1/ack", "application/json", bytes.NewReader([]byte(`{"note": "a cable"}`)))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	b.open("about:blank")
	b.open(r.url)
	testenv.Until(t, time.Minute, "it is acknowledged everywhere", func() bool {
		got := b.text(rows)
		return got != "" && strings.Count(got, "acknowledged") == strings.Count(got, "|")+1 &&
			b.yes(`return document.querySelector("#rows .hurt") === null`) &&
			strings.Contains(b.text(`return document.querySelector("#rows small").innerText`), "acknowledged")
	})
	if bad := b.errors(); len(bad) > 0 {
		t.Errorf("the console reports %v", bad)
	}
}
