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

// Every metric that a dashboard shows, or an alert asks for, is one that is served.
func TestDashboardsAskForWhatIsServed(t *testing.T) {
	source, err := os.ReadFile("metrics.go")
	if err != nil {
		t.Fatal(err)
	}
	served := append(slices.Clone(probe.Metrics), prom.Metrics...)
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
		for _, name := range regexp.MustCompile(`\btallywheel_[a-z_]+`).FindAllString(string(b), -1) {
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
