package api

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/ledger"
)

// What was lost is acknowledged by a request that no form of another site can make; from then on
// the status counts anew, and the books stay.
func TestAck(t *testing.T) {
	g, s, c := served(t, nil, device.source)
	write(t, c, append(frames(0, 3), frames(5, 3)...))
	stored(t, g, "a", 6)
	if code, body := get(t, s.URL()+"healthz", nil); code != http.StatusServiceUnavailable ||
		strings.Contains(body, "wire") {
		t.Errorf("healthz over a loss: %d %s", code, body)
	}
	post := func(kind, body string) (int, string) {
		resp, err := http.Post(s.URL()+"api/v1/ack", kind, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var v map[string]any
		_ = json.NewDecoder(resp.Body).Decode(&v) // an answer that is no JSON has no keys
		text, _ := v["error"].(string)
		return resp.StatusCode, text
	}
	for _, bad := range []struct {
		kind, body string
		code       int
	}{
		{"application/x-www-form-urlencoded", "note=x", 415},
		{"text/plain", `{"note":"x"}`, 415},
		{"application/json", "note", 400},
		{"application/json", `{"note": 1}`, 400},
		{"application/json", "[]", 400},
		{"application/json", `{"nota":"x"}`, 400},
		{"application/json", `{"note":"two\nlines"}`, 400},
		{"application/json", `{"note":"x"} {"note":"y"}`, 400},
		{"application/json", `{"note":"x"}, and more`, 400},
		{"application/json", `{"note":"x"}` + strings.Repeat(" ", maxAck) + "x", 400},
		{"application/json", `{"note":"` + strings.Repeat("x", 2*maxAck) + `"}`, 400},
	} {
		if code, text := post(bad.kind, bad.body); code != bad.code || text == "" || strings.Contains(text, " Go ") {
			t.Errorf("%.40s: %d %q, want %d", bad.body, code, text, bad.code)
		}
	}
	if code, _ := get(t, s.URL()+"api/v1/ack", nil); code == http.StatusOK {
		t.Error("a GET acknowledges")
	}
	if g.Sheet().Verdict.Level != ledger.Bad {
		t.Fatal("a refused request has acknowledged")
	}
	if code, text := post("application/json; charset=utf-8", `{"note":"a cable"}`); code != http.StatusOK {
		t.Fatalf("%d %s", code, text)
	}
	_, body := get(t, s.URL()+"api/v1/status", nil)
	var st Status
	if err := json.Unmarshal([]byte(body), &st); err != nil {
		t.Fatal(err)
	}
	if !st.Good || st.Ack == nil || st.Ack.Note != "a cable" || st.Since != st.Ack.At ||
		st.Sheet.Ports[0].Frames.Missing != 2 {
		t.Errorf("%.600s", body)
	}
	if code, _ := get(t, s.URL()+"healthz", nil); code != http.StatusOK {
		t.Errorf("healthz: %d", code)
	}
}

// A page of another origin acknowledges nothing, whichever header its browser tells that by;
// reading is not refused for an Origin.
func TestAckOfAnotherOrigin(t *testing.T) {
	g := start(t, nil)
	defer stop(t, g)
	s := serve(t, g)
	defer s.Close()
	own := strings.TrimSuffix(s.URL(), "/")
	for _, c := range []struct {
		origin, site string
		want         int
	}{
		{"http://evil.example", "", http.StatusForbidden},
		{"null", "", http.StatusForbidden},
		{own + "0", "", http.StatusForbidden}, // another port
		{own, "same-site", http.StatusForbidden},
		{own, "", http.StatusOK},
		{own, "same-origin", http.StatusOK},
		{"", "", http.StatusOK}, // no browser
	} {
		head := func(r *http.Request) {
			for name, value := range map[string]string{"Origin": c.origin, "Sec-Fetch-Site": c.site} {
				if value != "" {
					r.Header.Set(name, value)
				}
			}
		}
		before := g.Sheet().Ack
		code, body := get(t, s.URL()+"api/v1/ack", func(r *http.Request) {
			head(r)
			r.Method, r.Body = http.MethodPost, io.NopCloser(strings.NewReader(`{"note":"x"}`))
			r.Header.Set("Content-Type", "application/json")
		})
		if code != c.want || code != http.StatusOK && g.Sheet().Ack != before {
			t.Errorf("origin %q, site %q: %d %s, want %d", c.origin, c.site, code, body, c.want)
		}
		if code, body := get(t, s.URL()+"api/v1/status", head); code != http.StatusOK {
			t.Errorf("origin %q, site %q: reading gives %d %s", c.origin, c.site, code, body)
		}
	}
}
