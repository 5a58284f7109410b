package report_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/report"
)

// TestLossesAreShownInAll: frames that few rounds lost are not shown as none.
func TestLossesAreShownInAll(t *testing.T) {
	r := sample()
	e := &r.Experiments[0]
	lost := lab.Summarise("frames", []float64{0, 0, 0, 4711, 0, 0, 0, 0, 0})
	total := 4711.0
	lost.Total = &total
	e.Shown = append(e.Shown, lab.LostFrames.String())
	for i := range e.Rows {
		if e.Rows[i].Metrics != nil {
			e.Rows[i].Metrics[lab.LostFrames.String()] = lost
		}
	}
	var page, text, table bytes.Buffer
	for _, err := range []error{report.HTML(&page, r), report.Markdown(&text, r), report.Table(&table, e)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, b := range map[string]*bytes.Buffer{"report.html": &page, "report.md": &text, "the table": &table} {
		if !strings.Contains(b.String(), report.Value(lab.LostFrames.String(), total)) {
			t.Errorf("%s has not the frames that were lost in all", name)
		}
	}
}
