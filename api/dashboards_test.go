package api

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/tallywheel/tallywheel/probe"
	"github.com/tallywheel/tallywheel/server/prom"
)

// shown is what the dashboard and the alerts of a recorder must have.
var shown = map[string][]string{
	"recorder.json": {
		"source_up", "missing_frames", "frames_total", "outages_total", "in_flight_frames", "log_sync_seconds_bucket",
		"disk_free_bytes",
		"verdict_level", "lost",
	},
	"alerts.yml": {
		"source_up", "losses_total", "outages_total", "disk_free_bytes", "last_end", "reason",
	},
}

// Every metric that a dashboard shows, or an alert asks for, is one that is served.
func TestDashboardsAskForWhatIsServed(t *testing.T) {
	source, err := os.ReadFile("metrics.go")
	if err != nil {
		t.Fatal(err)
	}
	served := append(probe.Metrics(), prom.Metrics()...)
	for _, m := range regexp.MustCompile(`desc\("([a-z_]+)"`).FindAllStringSubmatch(string(source), -1) {
		served = append(served, "tallywheel_"+m[1])
	}
	files, err := filepath.Glob("../dashboards/*")
	if err != nil || len(files) < 4 {
		t.Fatalf("%v, %v", files, err)
	}
	asked := 0
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`\btallywheel_[a-z_]+`).FindAllString(string(b), -1)
		for _, must := range shown[filepath.Base(file)] {
			if !slices.Contains(names, "tallywheel_"+must) {
				t.Errorf("%s does not ask for tallywheel_%s", file, must)
			}
		}
		for _, name := range names {
			asked++
			family := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
			if !slices.Contains(served, name) && !slices.Contains(served, family) {
				t.Errorf("%s asks for %s, which is not served", file, name)
			}
		}
	}
	if asked < 40 {
		t.Errorf("the dashboards ask for %d metrics only", asked)
	}
}
