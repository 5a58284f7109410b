package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

// proxy stands before a recorder, and does what proxies and networks do in trouble.
type proxy struct {
	*httptest.Server
	target atomic.Pointer[url.URL]
	down   atomic.Bool // answers 502
	mute   atomic.Bool // lets nothing through, and tells nobody
}

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	p := &proxy{}
	p.to(t, target)
	forward := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(p.target.Load()) },
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case p.down.Load():
			w.WriteHeader(http.StatusBadGateway)
		case p.mute.Load():
			<-r.Context().Done()
		default:
			forward.ServeHTTP(&muffled{w, p}, r)
		}
	}))
	t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

func (p *proxy) to(t *testing.T, target string) {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	p.target.Store(u)
}

// muffled is an answer that goes on into the void while the proxy is mute.
type muffled struct {
	http.ResponseWriter
	p *proxy
}

func (m *muffled) Write(b []byte) (int, error) {
	if m.p.mute.Load() {
		return len(b), nil
	}
	return m.ResponseWriter.Write(b)
}

func (m *muffled) Unwrap() http.ResponseWriter { return m.ResponseWriter }

// TestPageComesBack: whatever cuts a page from its recorder, it says so at once and never goes on
// in green, and it comes back by itself.
func TestPageComesBack(t *testing.T) {
	b := startBrowser(t)
	dir := t.TempDir()
	port, err := serialtest.NewPort(filepath.Join(dir, "line-1"))
	if err != nil {
		t.Fatal(err)
	}
	beat(t, port, 1, new(atomic.Int64))
	r := startRecorder(t, dir, serialSource("line-1", port.Link))
	p := startProxy(t, r.url)
	b.view(1440, 900, "light")
	b.open(p.URL)
	const shown = `return document.getElementById("verdict").className + "|" + document.getElementById("level").textContent + "|" + document.title`
	live := func(when string) {
		t.Helper()
		testenv.Until(t, 60*time.Second, when+": the page is live", func() bool {
			return b.text(shown) == "verdict good|Good|Good · Tallywheel" && b.yes(filled)
		})
	}
	stale := func(when, why string) {
		t.Helper()
		testenv.Until(t, 60*time.Second, when+": the page says that it is not connected", func() bool {
			return b.text(shown) == "verdict stale|Not connected|Not connected · Tallywheel" &&
				strings.HasPrefix(b.text(`return document.getElementById("stale").textContent`),
					"Not connected since ") &&
				strings.Contains(b.text(`return document.getElementById("link-text").textContent`), why)
		})
	}
	live("at first")
	p.down.Store(true)
	p.CloseClientConnections()
	stale("502", "502")
	p.down.Store(false)
	live("after the 502")

	p.mute.Store(true)
	stale("silence", "")
	p.mute.Store(false)
	live("after the silence")

	p.down.Store(true)
	p.CloseClientConnections()
	stale("before the retry by hand", "502")
	p.down.Store(false)
	b.click("#retry")
	live("after the retry by hand")

	since := r.sheet(t).Since
	r.stop(t)
	stale("the recorder is gone", "")
	r = startRecorder(t, dir, serialSource("line-1", port.Link))
	p.to(t, r.url)
	testenv.Until(t, 60*time.Second, "the page shows the new start", func() bool {
		return b.yes(fmt.Sprintf(`return document.querySelector("#facts time")?.dateTime !== undefined && !document.body.classList.contains("is-stale") &&
			[...document.querySelectorAll("#facts time")].at(-1).dateTime > new Date(%d).toISOString()`, int64(since)/1e6+1))
	})
	b.errors() // a browser reports each 502
	b.open(p.URL + "/#/starts")
	testenv.Until(t, 60*time.Second, "the start before is listed, with how it ended", func() bool {
		return b.yes(`return [...document.querySelectorAll("#starts-list tbody tr")].length === 1`) &&
			strings.Contains(b.text(`return document.getElementById("starts-list").textContent`), "How it ended")
	})
}
