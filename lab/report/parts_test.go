package report

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/lab"
)

// TestParts: each contestant's bar has its parts one behind the other, on the axis of the longest
// one; what was not measured has none, and names are escaped.
func TestParts(t *testing.T) {
	row := func(name string, parts ...float64) lab.Row {
		r := lab.Row{Contestant: name, Params: lab.Params{}, Metrics: map[string]lab.Figure{}}
		for i, v := range parts {
			r.Metrics[[]string{"way_queue_us", "way_handler_us"}[i]] = lab.Figure{Median: v}
		}
		return r
	}
	e := &lab.ExperimentResult{
		Chart: lab.Chart{Parts: lab.Names(lab.WayQueue, lab.WayHandler)},
		Rows: []lab.Row{
			row("<b>long", 30, 70), row("short", 25, 0), row("below", -5, 50),
			{Contestant: "not run", Params: lab.Params{}},
		},
	}
	svg := string(parts(e, lab.Params{}))
	bars := regexp.MustCompile(`<rect class="p(\d)" x="([0-9.]+)" y="(\d+)" width="([0-9.]+)" height="18">`).FindAllStringSubmatch(svg, -1)
	if len(bars) != 6 {
		t.Fatalf("%d parts, want 2 of each of 3:\n%s", len(bars), svg)
	}
	number := func(s string) float64 {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	const axis = chartWidth - barLeft - barRight
	for i, want := range []float64{0.3, 0.7, 0.25, 0, 0, 0.5} {
		if got := number(bars[i][4]); got < axis*want-0.1 || got > axis*want+0.1 {
			t.Errorf("part %d is %v long, want %v of %v", i, got, want, axis)
		}
		if i%2 == 1 && number(bars[i][2])-number(bars[i-1][2])-number(bars[i-1][4]) > 0.11 {
			t.Errorf("part %d does not begin where the one before it ends", i)
		}
	}
	if strings.Contains(svg, "<b>") || strings.Contains(svg, "not run") {
		t.Error(svg)
	}
	if svg := parts(&lab.ExperimentResult{Rows: e.Rows}, lab.Params{}); svg != "" {
		t.Errorf("drawn without parts: %s", svg)
	}
}
