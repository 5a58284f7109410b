package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// browser is a headless Chromium driven by the W3C WebDriver protocol.
type browser struct {
	t       *testing.T
	session string
}

func startBrowser(t *testing.T) *browser {
	t.Helper()
	driver := testenv.Program(t, "chromedriver", "apt install chromium-driver")
	chromium := testenv.Program(t, "chromium", "apt install chromium")
	port := freePort(t)
	testenv.Start(t, driver, fmt.Sprintf("--port=%d", port))
	b := &browser{t: t, session: fmt.Sprintf("http://127.0.0.1:%d/session", port)}
	testenv.Until(t, 20*time.Second, "chromedriver answers", func() bool {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/status", port))
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
	var s struct{ SessionID string }
	b.call("POST", "", map[string]any{"capabilities": map[string]any{"alwaysMatch": map[string]any{
		"goog:loggingPrefs": map[string]string{"browser": "ALL"},
		"goog:chromeOptions": map[string]any{"binary": chromium, "args": []string{
			"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
			"--disable-background-networking",
			"--disable-component-update", "--disable-sync", "--user-data-dir=" + t.TempDir(),
		}},
	}}}, &s)
	b.session += "/" + s.SessionID
	t.Cleanup(func() { b.call("DELETE", "", nil, nil) })
	return b
}

func (b *browser) call(method, path string, body, value any) {
	b.t.Helper()
	if refused := b.try(method, path, body, value); refused != "" {
		b.t.Fatalf("webdriver %s %s: %s", method, path, refused)
	}
}

// try is call that returns what the driver says against it, or "".
func (b *browser) try(method, path string, body, value any) (refused string) {
	b.t.Helper()
	var r io.Reader
	if body != nil {
		j, err := json.Marshal(body)
		if err != nil {
			b.t.Fatal(err)
		}
		r = bytes.NewReader(j)
	}
	req, err := http.NewRequest(method, b.session+path, r)
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct{ Value json.RawMessage }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		b.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		return string(answer.Value)
	}
	if value != nil {
		if err := json.Unmarshal(answer.Value, value); err != nil {
			b.t.Fatal(err)
		}
	}
	return ""
}

func (b *browser) open(url string) { b.call("POST", "/url", map[string]string{"url": url}, nil) }

// eval runs JavaScript that returns a value.
func (b *browser) eval(script string, value any) {
	b.t.Helper()
	b.call("POST", "/execute/sync", map[string]any{"script": script, "args": []any{}}, value)
}

func (b *browser) text(script string) (s string) {
	b.t.Helper()
	b.eval(script, &s)
	return s
}

// devtools sends a command of Chromium's own protocol.
func (b *browser) devtools(cmd string, params map[string]any) {
	b.t.Helper()
	b.call("POST", "/goog/cdp/execute", map[string]any{"cmd": cmd, "params": params}, nil)
}

// view sets the size of the page and the theme.
func (b *browser) view(width, height int, theme string) {
	b.t.Helper()
	b.devtools("Emulation.setDeviceMetricsOverride",
		map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false})
	b.devtools("Emulation.setEmulatedMedia",
		map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": theme}}})
}

// errors returns what the console has reported as severe since the last call.
func (b *browser) errors() (messages []string) {
	b.t.Helper()
	var log []struct{ Level, Message string }
	b.call("POST", "/se/log", map[string]string{"type": "browser"}, &log)
	for _, l := range log {
		if l.Level == "SEVERE" {
			messages = append(messages, l.Message)
		}
	}
	return messages
}

// picture writes a screenshot where TALLYWHEEL_PICTURES says, if it does.
func (b *browser) picture(name string) {
	b.t.Helper()
	dir := os.Getenv("TALLYWHEEL_PICTURES")
	if dir == "" {
		return
	}
	var png string
	b.call("GET", "/screenshot", nil, &png)
	raw, err := base64.StdEncoding.DecodeString(png)
	if err == nil {
		err = os.WriteFile(dir+"/"+name, raw, 0o644)
	}
	if err != nil {
		b.t.Error(err)
	}
}

// click clicks on the first element of a selector, where a person could: it must be there and
// uncovered. The page may put another in its place between the two calls: then that is clicked on.
func (b *browser) click(selector string) {
	b.t.Helper()
	testenv.Until(b.t, time.Minute, "a click on "+selector, func() bool {
		var found map[string]string
		b.call("POST", "/element", map[string]string{"using": "css selector", "value": selector}, &found)
		for _, id := range found {
			switch refused := b.try("POST", "/element/"+id+"/click", map[string]string{}, nil); {
			case strings.Contains(refused, "stale element reference"):
				return false
			case refused != "":
				b.t.Fatalf("webdriver: click on %s: %s", selector, refused)
			}
		}
		return true
	})
}

// keys presses keys one after the other, where the focus is.
func (b *browser) keys(text string) {
	b.t.Helper()
	var all []map[string]string
	for _, r := range text {
		all = append(all, map[string]string{"type": "keyDown", "value": string(r)},
			map[string]string{"type": "keyUp", "value": string(r)})
	}
	b.call("POST", "/actions",
		map[string]any{"actions": []any{map[string]any{"type": "key", "id": "keyboard", "actions": all}}}, nil)
}
