package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
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
	if err := os.WriteFile(filepath.Join(dir, "reasons_test.yml"), []byte(reasonsTest()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"check", "rules", "alerts.yml"},
		{"test", "rules", "alerts_test.yml"},
		{"test", "rules", "reasons_test.yml"},
	} {
		c := exec.Command(promtool, args...)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// reasonsTest is a test of promtool: each rule of the verdict, where it holds, fires one alert that
// names it. A source that is not there has an alert of its own.
func reasonsTest() string {
	var series, fire strings.Builder
	for _, r := range ledger.Rules() {
		fmt.Fprintf(&series, "      - {series: 'tallywheel_reason{reason=%q, level=%q}', values: \"1x80\"}\n", r.Kind,
			r.Level)
		if r.Kind != "not_there" {
			fmt.Fprintf(&fire, "          - {labels: '{reason=%q}', value: 1}\n", r.Kind)
		}
	}
	return "rule_files: [alerts.yml]\nevaluation_interval: 15s\ntests:\n  - interval: 15s\n    input_series:\n" +
		series.String() +
		"    promql_expr_test:\n      - expr: 'count by (reason) (ALERTS{alertstate=\"firing\"})'\n        eval_time: 20m\n        exp_samples:\n" + fire.String()
}
