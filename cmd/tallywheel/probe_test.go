package main

import (
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/probe"
)

// TestPrintProbe: a column stands for what is measured, and the others are left out.
func TestPrintProbe(t *testing.T) {
	for _, k := range probe.Kinds() {
		var out strings.Builder
		h := probe.Histogram{Op: "op", Submitted: 77, Count: 1, SumNs: 3, Log2Ns: []uint64{0, 1}}
		if err := printProbe(&out, probe.Report{Kind: k, Completed: 1, Latency: []probe.Histogram{h}}); err != nil {
			t.Fatal(err)
		}
		columns := []string{"operation", "timed", "mean", "p50", "<", "p99", "<", "p99.9", "<"}
		row := []string{"op", "1", "3ns", "4ns", "4ns", "4ns"}
		if k == probe.Uring {
			columns = append([]string{"operation", "submitted"}, columns[1:]...)
			row = append([]string{"op", "77"}, row[1:]...)
		}
		words := " " + strings.Join(strings.Fields(out.String()), " ") + " "
		if want := " " + strings.Join(append(columns, row...), " ") + " "; !strings.Contains(words, want) {
			t.Errorf("%s: want%sin\n%s", k, want, out.String())
		}
	}
}

// TestPrintSegments: each segment that was seen has a line, with its operation.
func TestPrintSegments(t *testing.T) {
	var out strings.Builder
	h := probe.Histogram{Op: "recv", Submitted: 2, Count: 1, SumNs: 3, Log2Ns: []uint64{0, 1}}
	h.Segments = []probe.Segment{{Name: probe.ToReaped, Histogram: h}}
	if err := printProbe(&out, probe.Report{Kind: probe.Uring, Latency: []probe.Histogram{h}}); err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(out.String()), " ")
	want := "operation segment timed mean p50 < p99 < recv complete to reaped 1 3ns 4ns 4ns"
	if !strings.Contains(words, want) {
		t.Errorf("want %s in\n%s", want, out.String())
	}
}
