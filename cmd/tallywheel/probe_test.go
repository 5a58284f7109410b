package main

import (
	"bufio"
	"context"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

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

// TestProbeEndsWithItsProcess: it went on for its whole time, and would have counted who got the
// number of the process next.
func TestProbeEndsWithItsProcess(t *testing.T) {
	if err := probe.Available(probe.Sched); err != nil {
		t.Skipf("SKIPPED: %v; run as root, on a kernel with BTF", err)
	}
	child := exec.Command("sh", "-c", "read line")
	in, err := child.StdinPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(child.Process.Pid)
	talk, talks := io.Pipe()
	var out strings.Builder
	root := newRoot()
	root.SetOut(&out)
	root.SetErr(talks)
	root.SetArgs([]string{"probe", "sched", "--pid", pid, "--for", "1h", "--listen", "127.0.0.1:0"})
	ctx, giveUp := context.WithTimeout(t.Context(), 2*time.Minute)
	defer giveUp()
	ended := make(chan error, 1)
	go func() {
		err := root.ExecuteContext(ctx)
		_ = talks.Close()
		ended <- err
	}()
	lines := bufio.NewScanner(talk)
	if !lines.Scan() || !strings.Contains(lines.Text(), "metrics at") { // it has begun
		t.Fatalf("%q", lines.Text())
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if want := "process " + pid + " has ended: this is what was seen of it"; !lines.Scan() || lines.Text() != want {
		t.Errorf("%q, want %q", lines.Text(), want)
	}
	if err := <-ended; err != nil || !strings.Contains(out.String(), "wakeup") {
		t.Errorf("%v: %s", err, out.String())
	}
	_ = child.Wait() // its status is that of a read without a line
}
