package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

// axeFile is where deploy/test-deps.sh puts axe-core, which looks for what keeps people from using
// a page: missing names, contrast, order.
const axeFile = "../.deps-node/node_modules/axe-core/axe.min.js"

// axe is the source of axe-core, "" if it is not there: then the test says so at its end.
func axe(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(axeFile)
	if err != nil {
		t.Cleanup(func() {
			t.Skip("SKIPPED: axe-core is missing, so nothing was looked at for accessibility; make deps, which wants npm")
		})
	}
	return string(b)
}

// accessible has axe look at the page as it is, and fails for what it calls serious or critical.
func (b *browser) accessible(axe, what string) {
	b.t.Helper()
	if axe == "" {
		return
	}
	b.eval(axe+"; return null", nil)
	var found []struct {
		ID, Impact, Help string
		Nodes            []struct {
			Target         []any
			FailureSummary string
		}
	}
	b.eval(`return axe.run(document, { resultTypes: ["violations"] }).then((r) => r.violations)`, &found)
	for _, v := range found {
		j, _ := json.Marshal(v.Nodes)
		text := fmt.Sprintf("%s: axe: %s (%s): %s: %.600s", what, v.ID, v.Impact, v.Help, j)
		if v.Impact == "serious" || v.Impact == "critical" {
			b.t.Error(text)
		} else {
			b.t.Log(text)
		}
	}
}

const (
	level   = `return document.getElementById("verdict").dataset.level ?? ""`
	filled  = `return document.getElementById("link-text").textContent.startsWith("live") && document.getElementById("sentence").textContent !== ""`
	tooWide = `return Math.max(document.documentElement.scrollWidth - document.documentElement.clientWidth,
		...[...document.querySelectorAll("main .card, main figure, .tiles > div, .verdict")].filter((e) => e.clientWidth).map((e) => e.scrollWidth - e.clientWidth))`
)

// noTime is a time of nothing, at the end of a line. 940 µs are one of something.
var noTime = regexp.MustCompile(`(?m)(^|[^\d.,])0 µs$`)

func (b *browser) yes(script string) (ok bool) {
	b.t.Helper()
	b.eval(script, &ok)
	return ok
}

// looks opens the views of a page, the overview in both widths and themes: nothing runs over, the
// console stays silent, axe finds nothing, and no figure stands where nothing was measured.
func (b *browser) looks(url, name, wantLevel, axe string) {
	b.t.Helper()
	for _, theme := range []string{"light", "dark"} {
		for _, width := range []int{1440, 390} {
			for _, view := range []string{"", "#/records", "#/starts"} {
				if view != "" && (theme == "light") != (width == 1440) {
					continue // the overview is looked at in all four
				}
				what := fmt.Sprintf("%s %s at %d px, %s", name, view, width, theme)
				b.view(width, 900, theme)
				b.open("about:blank") // else another part of the same page is no new page
				b.open(url + view)
				testenv.Until(b.t, 30*time.Second, what+": the page is filled", func() bool {
					return b.yes(filled) && b.text(level) == wantLevel &&
						b.yes(`return document.body.dataset.view !== undefined`)
				})
				if view == "#/records" {
					testenv.Until(b.t, 30*time.Second, what+": the records are there", func() bool {
						return b.text(`return document.getElementById("records-state").textContent`) != "looking…"
					})
				}
				var over int
				if b.eval(tooWide, &over); over > 0 {
					b.t.Errorf("%s: %d pixels too wide", what, over)
				}
				if text := b.text(`return document.body.innerText`); noTime.MatchString(text) ||
					strings.Contains(text, "undefined") || strings.Contains(text, "NaN") {
					b.t.Errorf("%s: a figure stands where nothing was measured: %s", what, text)
				}
				b.accessible(axe, what)
				b.picture(strings.NewReplacer("#/", "", " ",
					"-").Replace(fmt.Sprintf("page-%s-%s-%d-%s.png", name, view, width, theme)))
			}
		}
	}
	if bad := b.errors(); len(bad) > 0 {
		b.t.Errorf("%s: the console reports %v", name, bad)
	}
}

// demoPage starts a demo that lasts longer than its test, and returns where its page is.
func demoPage(t *testing.T, args ...string) string {
	t.Helper()
	p := testenv.Start(t, testenv.Binary(t), append([]string{"demo", "--for", "600s"}, args...)...)
	var url string
	testenv.Until(t, 30*time.Second, "the demo serves", func() bool {
		if m := demoURL.FindStringSubmatch(p.Err.String()); m != nil {
			url = m[1]
		}
		return url != ""
	})
	return url
}

// TestPageLooks: no source, one, and sixty-four, each in one of the levels.
func TestPageLooks(t *testing.T) {
	b := startBrowser(t)
	axe := axe(t)

	r := startRecorder(t, t.TempDir(), "  []\n")
	b.looks(r.url, "0 ports", "watch", axe)
	if !b.yes(`location.hash = "#/"; return document.getElementById("no-ports").hidden === false`) {
		t.Error("nothing says what to do where no source is recorded")
	}

	dir := t.TempDir()
	port, err := serialtest.NewPort(filepath.Join(dir, "line-1"))
	if err != nil {
		t.Fatal(err)
	}
	beat(t, port, 1, new(atomic.Int64))
	r = startRecorder(t, dir, serialSource("line-1", port.Link))
	b.looks(r.url, "1 port", "good", axe)

	url := demoPage(t, "--ports", "64", "--rate", "2000")
	b.looks(url, "64 ports", "bad", axe)

	// The worst port is first, and the live region does not tell every second what it has told.
	b.view(1440, 900, "light")
	b.open("about:blank")
	b.open(url)
	testenv.Until(t, 30*time.Second, "the page is filled", func() bool { return b.yes(filled) })
	b.eval(`window.told = 0; new MutationObserver(() => told++).observe(document.getElementById("announce"), { childList: true, characterData: true, subtree: true }); return null`, nil)
	sheets := map[string]bool{}
	testenv.Until(t, 60*time.Second, "eight more statuses came", func() bool {
		sheets[b.text(`return document.getElementById("link-text").textContent`)] = true
		return len(sheets) > 8
	})
	var told int
	if b.eval(`return told`, &told); told > 1 {
		t.Errorf("a screen reader is told of the same level %d times", told)
	}
	worst := `const of = (r) => [...r.querySelectorAll("td")].slice(1, 3).reduce((n, td) => n + Number(td.querySelector(".value").textContent.replaceAll(",", "")), 0);
		const all = [...document.querySelectorAll("#rows tr")].map(of); return all.length === 64 && all.every((n, i) => i === 0 || n <= all[i - 1])`
	testenv.Until(t, 30*time.Second, "the worst of 64 ports is first", func() bool { return b.yes(worst) })
}

// TestPageByKeyboard: the first key leads to the content, each column says what it means when it
// has the focus, Escape takes that away, and what has the focus is seen.
func TestPageByKeyboard(t *testing.T) {
	b := startBrowser(t)
	url := demoPage(t, "--ports", "2", "--rate", "4000")
	b.view(1440, 900, "light")
	b.open(url)
	testenv.Until(t, 30*time.Second, "the page is filled", func() bool {
		return b.yes(filled) && b.yes(`return document.querySelectorAll("#rows tr").length === 2`)
	})
	const tab, enter, escape = "\ue004", "\ue007", "\ue00c"
	const active = `return document.activeElement.className + "|" + document.activeElement.id`
	if b.keys(tab); b.text(active) != "skip|" {
		t.Errorf("the first key leads to %s, want the link that skips to the content", b.text(active))
	}
	if b.keys(enter); b.text(active) != "|content" {
		t.Errorf("it leads to %s, want the content", b.text(active))
	}
	hints, outlined := map[string]string{}, true
	testenv.Until(t, 60*time.Second, "each column was reached", func() bool {
		b.keys(tab)
		if !b.yes(`return document.activeElement.classList.contains("hint")`) {
			return false
		}
		outlined = outlined && b.yes(`return getComputedStyle(document.activeElement).outlineStyle !== "none"`)
		hints[b.text(`return document.activeElement.textContent`)] = b.text(`return document.querySelector(".tip:not([hidden])")?.textContent ?? ""`)
		return b.yes(`return document.activeElement === [...document.querySelectorAll(".hint")].at(-1)`)
	})
	if len(hints) < 10 || !outlined {
		t.Errorf("%d columns reached, the focus seen: %v", len(hints), outlined)
	}
	for column, tip := range hints {
		if len(tip) < 20 {
			t.Errorf("column %s says %q", column, tip)
		}
	}
	if b.keys(escape); !b.yes(`return document.querySelector(".tip:not([hidden])") === null`) {
		t.Error("the tip stays after Escape")
	}
}
