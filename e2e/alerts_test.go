package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// Prometheus itself holds each alert against series in which it must fire, and against those of a
// good recorder, over which none may.
func TestAlertsFireOnTheirTroubles(t *testing.T) {
	promtool := testenv.Program(t, "promtool", "apt install prometheus")
	dir := t.TempDir()
	for _, file := range []string{"../dashboards/alerts.yml", "testdata/alerts_test.yml"} {
		b, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(file)), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		c := exec.Command(promtool, args...)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
