package lab

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// written are the ways in which the sources of contestants and loads write a metric's name, by the
// end of a file's name.
var written = map[string]*regexp.Regexp{
	".go": regexp.MustCompile(`Metric: +"(\w+)"[,}]|\bm\["(\w+)"\]`),
	".c":  regexp.MustCompile(`%(?:g|\.\d+f|lu|llu|d) ([a-z]+_\w+)`),
	".h":  regexp.MustCompile(`%(?:g|\.\d+f|lu|llu|d) ([a-zA-Z]+_\w+)`),
	".rs": regexp.MustCompile(`\{\w*\} ([a-z]+_\w+)`),
	".py": regexp.MustCompile(`\} ([a-z]+_\w+)`),
}

// TestMetricsThatAreWritten: each name that a contestant or a load writes for a metric is one of a
// metric: of a misspelt one nobody would ever ask.
func TestMetricsThatAreWritten(t *testing.T) {
	found := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		names := written[filepath.Ext(path)]
		if err != nil || d.IsDir() || names == nil || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range names.FindAllStringSubmatch(string(text), -1) {
			name := m[1]
			if name == "" {
				name = m[2]
			}
			if found++; !isMetric(name) && !strings.HasSuffix(name, "_") { // the rest of it follows
				t.Errorf("%s: there is no metric %q", path, name)
			}
		}
		return err
	})
	if err != nil || found < 100 {
		t.Errorf("%d names: %v", found, err)
	}
}

// TestAMisspeltMetricIsWrong: in tests, a turn fails that has a figure of no metric.
func TestAMisspeltMetricIsWrong(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	b, err := NewBench(t.Context(), Quick(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	b.Dir = t.TempDir()
	c := Tool("true", "coreutils").As("misspells")
	c.Command = func(*Bench, Params, time.Duration) []string { return nil }
	c.Output = func([]byte, time.Duration) (Metrics, error) {
		return Metrics{"ops": 1, "ops_per_s": 1, "latency_us_p98": 1}, nil
	}
	_, err = turn{b, c, nil, shortestTurn, false}.run(t.Context(), &Experiment{Name: "test"})
	if err == nil || !strings.Contains(err.Error(), `no metric "latency_us_p98"`) {
		t.Errorf("it is taken: %v", err)
	}
}
