package api

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

var update = flag.Bool("update", false, "write testdata/shape.golden anew")

// shape lists the keys of a JSON value, with those of what is in it. Keys that are data stand as *.
func shape(prefix string, v any, into map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			if regexp.MustCompile(`\.(dropped|unread|refused|settings)$`).MatchString(prefix) {
				k = "*"
			}
			into[prefix+"."+k] = true
			shape(prefix+"."+k, inner, into)
		}
	case []any:
		for _, inner := range v {
			shape(prefix+"[]", inner, into)
		}
	}
}

// The API's paths, the keys of its answers, the names of its events, and the metrics with their
// labels are what programs rely on: they change by intention only.
func TestShapeOfTheAPI(t *testing.T) {
	a := newDevice(t)
	s := a.source("a")
	s.Quarantine = true
	absent := config.Source{ID: "absent", Serial: &config.Serial{Port: "/absent"}, Frame: config.Frame{Kind: "line"}}
	g := start(t, nil, s, absent,
		config.Source{ID: "u", UDP: &config.Net{Listen: "127.0.0.1:0"}, Frame: config.Frame{Kind: "line"}})
	defer stop(t, g)
	api := serve(t, g)
	defer api.Close()
	c := a.connected(t)
	defer c.Close()
	write(t, c, append(append(frames(0, 3), "no frame"...), frames(5, 3)...))
	stored(t, g, "a", 6)
	testenv.Until(t, 10*time.Second, "there is a sample",
		func() bool { _, ok := g.LastSample(); return ok && portOf(g, "absent").OutageCount > 0 })
	testenv.Until(t, 10*time.Second, "the loss is listed",
		func() bool { all, _, _ := g.Losses(""); return len(all) > 0 })

	keys := map[string]bool{}
	for _, path := range []string{
		"healthz", "api/v1/sheet", "api/v1/ports", "api/v1/status", "api/v1/losses", "api/v1/starts",
		"api/v1/losses?limit=0",
		"api/v1/records?contains=hex:0", "api/v1/records?source=a", "api/v1/records?quarantine=true",
		"api/v1/records?limit=0", "api/v1/stream?limit=0", "api/v1/records?from_seq=1000",
	} {
		code, body := get(t, api.URL()+path, nil)
		var v any
		if err := json.Unmarshal([]byte(body), &v); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		shape(fmt.Sprintf("%d %s", code, path), v, keys)
	}
	for _, path := range []string{"api/v1/stream?from_seq=1", "api/v1/stream?from_seq=1000", "api/v1/events"} {
		firstEvent(t, api.addr, path, keys)
	}
	_, metrics := get(t, api.URL()+"metrics", nil)
	label := regexp.MustCompile(`([a-z]+)="[^"]*"`)
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "# ") {
			keys[strings.TrimSpace(line)] = true
		} else if name, _, ok := strings.Cut(line, " "); ok {
			keys["metric "+label.ReplaceAllString(name, "$1")] = true
		}
	}
	maps.DeleteFunc(keys, func(key string, _ bool) bool {
		// Some containers forbid the first; the others are not ours.
		return strings.Contains(key, "clock_synchronised") || strings.Contains(key, " go_") ||
			strings.Contains(key, " process_")
	})
	got := strings.Join(slices.Sorted(maps.Keys(keys)), "\n") + "\n"
	const file = "testdata/shape.golden"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		for _, line := range strings.Split(got, "\n") {
			if !strings.Contains(string(want), line+"\n") {
				t.Errorf("is there now: %s", line)
			}
		}
		for _, line := range strings.Split(string(want), "\n") {
			if !strings.Contains(got, line+"\n") {
				t.Errorf("is gone: %s", line)
			}
		}
	}
}

// firstEvent notes the name of the first event of a stream, and its shape.
func firstEvent(t *testing.T, addr net.Addr, path string, keys map[string]bool) {
	t.Helper()
	resp, err := http.Get("http://" + addr.String() + "/" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var text string
	for b := make([]byte, 4096); !strings.Contains(text, "data: ") || !strings.HasSuffix(text, "\n\n"); {
		n, err := resp.Body.Read(b)
		if text += string(b[:n]); err != nil {
			t.Fatal(err)
		}
	}
	before, rest, _ := strings.Cut(text, "event: ") // an id may stand before the first event
	event, _, _ := strings.Cut("event: "+rest, "\n\n")
	for line := range strings.Lines(strings.TrimSpace(before) + "\n" + event) {
		name, data, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch name {
		case "":
		case "data":
			var v any
			if err := json.Unmarshal([]byte(data), &v); err != nil {
				t.Fatal(err)
			}
			shape(path, v, keys)
		case "id":
			keys[path+" has ids"] = true
		default:
			keys[path+" "+name+" "+data] = true
		}
	}
}
