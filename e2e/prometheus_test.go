package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/loadgen"
	"github.com/tallywheel/tallywheel/probe"
	"github.com/tallywheel/tallywheel/server"
	"github.com/tallywheel/tallywheel/server/prom"
)

// expressions are the queries of the dashboard, with its variables filled in.
func expressions(t *testing.T) (all []string) {
	t.Helper()
	b, err := os.ReadFile("../dashboards/server.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("$__rate_interval", "2s", "$job", ".*")
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, fill.Replace(target.Expr))
		}
	}
	if len(all) < 10 {
		t.Fatalf("the dashboard has %d queries", len(all))
	}
	return all
}

var (
	metricName = regexp.MustCompile(`tallywheel_[a-z_]+`)
	familyName = regexp.MustCompile(`(?m)^# TYPE (tallywheel_[a-z_]+) `)
)

func fetch(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d, %v", url, resp.StatusCode, err)
	}
	return string(b)
}

// TestPrometheusAndDashboard: the real Prometheus watches the recorder while its API is under load.
// Every metric that the dashboard names exists, and the four of its first panel come back as series
// on one time axis.
func TestPrometheusAndDashboard(t *testing.T) {
	prometheus := testenv.Program(t, "prometheus", "apt install prometheus")
	dir := t.TempDir()
	ring, engine := server.Available(server.Uring) == nil, ""
	if ring {
		engine = "server: {engine: uring}\n" // whose submissions are in the first panel
	}
	r := startRecorder(t, dir, engine)
	base := strings.TrimSuffix(r.url, "/")

	queries := expressions(t)
	known := map[string]bool{}
	for _, m := range familyName.FindAllStringSubmatch(fetch(t, base+"/metrics"), -1) {
		known[m[1]] = true
	}
	for _, name := range append(probe.Metrics(), prom.Metrics()...) { // not every engine has all
		known[name] = true
	}
	// of sources, and there is none
	known["tallywheel_frames_total"], known["tallywheel_dropped_frames_total"] = true, true
	for _, q := range queries {
		for _, name := range metricName.FindAllString(q, -1) {
			family := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
			if !known[name] && !known[family] {
				t.Errorf("the dashboard asks for %s, which does not exist", name)
			}
		}
	}

	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	config := fmt.Sprintf("global: {scrape_interval: 250ms}\nscrape_configs:\n  - job_name: tallywheel\n    static_configs: [{targets: [%q]}]\n", strings.TrimPrefix(base, "http://"))
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.Start(t, prometheus, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "tsdb"),
		"--web.listen-address="+addr, "--log.level=error")
	testenv.Until(t, 30*time.Second, "Prometheus is ready", func() bool {
		resp, err := http.Get("http://" + addr + "/-/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	ctx, cancel := context.WithCancel(context.Background())
	loaded := make(chan *loadgen.Result, 1)
	go func() {
		res, err := loadgen.Run(ctx,
			loadgen.Config{
				URL: base + "/healthz", Connections: 8, Rate: 2000, Timeout: time.Minute,
				Duration: 10 * time.Minute,
			})
		if err != nil {
			t.Error(err)
		}
		loaded <- res
	}()
	four := queries[:4]
	if !ring {
		four = append(four[:1:1], four[2:]...) // no submissions
	}
	for _, q := range four {
		testenv.Until(t, 30*time.Second, "Prometheus has "+q, func() bool { return len(series(t, addr, q)) >= 3 })
	}
	// The rate of the server's own count comes up to that of the load, as soon as its window is
	// full.
	testenv.Until(t, 30*time.Second, "Prometheus sees 2000 requests a second, or so", func() bool {
		all := series(t, addr, four[0])
		return len(all) > 0 && all[len(all)-1] > 1000 && all[len(all)-1] < 4000
	})
	cancel()
	res := <-loaded
	if res.Failed() > 0 || res.Requests == 0 {
		t.Errorf("the load had %d answers and %v", res.Requests, res.Errors)
	}
}

// series is what Prometheus has of the last minute.
func series(t *testing.T, addr, query string) (values []float64) {
	t.Helper()
	now := time.Now()
	v := url.Values{
		"query": {query}, "step": {"0.5"},
		"start": {strconv.FormatInt(now.Unix()-60, 10)}, "end": {strconv.FormatInt(now.Unix()+1, 10)},
	}
	var answer struct {
		Status string
		Data   struct {
			Result []struct{ Values [][2]any }
		}
	}
	if err := json.Unmarshal([]byte(fetch(t, "http://"+addr+"/api/v1/query_range?"+v.Encode())), &answer); err != nil ||
		answer.Status != "success" {
		t.Fatalf("%s: %v %v", query, answer.Status, err)
	}
	for _, r := range answer.Data.Result {
		for _, pair := range r.Values {
			text, _ := pair[1].(string)
			if f, err := strconv.ParseFloat(text, 64); err == nil && f >= 0 { // NaN is not
				values = append(values, f)
			}
		}
	}
	return values
}
