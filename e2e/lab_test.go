package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime/trace"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/lab"
)

// fits looks at a page in both themes, on a phone and on a desk.
func fits(t *testing.T, b *browser, path, picture string) {
	t.Helper()
	for _, theme := range []string{"light", "dark"} {
		for name, width := range map[string]int{"desktop": 1280, "phone": 390} {
			b.view(width, 1000, theme)
			b.open("file://" + path)
			var over, tables int
			b.eval(`return document.documentElement.scrollWidth - window.innerWidth`, &over)
			if over > 0 {
				t.Errorf("%s, %s, %s: the page is %d pixels too wide", filepath.Base(path), name, theme, over)
			}
			b.eval(`return [...document.querySelectorAll("table")].filter((t) => t.offsetHeight > 0).length`, &tables)
			if tables == 0 {
				t.Errorf("%s, %s, %s: no table is to be seen", filepath.Base(path), name, theme)
			}
			b.picture(picture + "-" + name + "-" + theme + ".png")
		}
	}
	if bad := b.errors(); len(bad) > 0 {
		t.Errorf("the console reports %v", bad)
	}
}

// TestLabFromAnywhere: the program measures away from the repository, with sources that it carries,
// and its report fits every screen.
func TestLabFromAnywhere(t *testing.T) {
	b := startBrowser(t)
	dir := t.TempDir()
	program := testenv.Binary(t)
	t.Setenv("TMPDIR", t.TempDir()) // a lock of its own: this looks at what is said, not at how fast anything is
	cmd := exec.Command(program, "lab", "run", "noise", "serial-mmap", "--budget", "3s", "--out", "report")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r, err := lab.ReadJSON(filepath.Join(dir, "report", "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Experiments) != 2 || r.Partial || r.Experiments[0].Find("copy/a", nil) == nil ||
		r.Experiments[1].Find("page/pread", nil) == nil {
		t.Errorf("results: %+v", r)
	}
	for _, v := range r.Experiments[1].Verdicts[:2] {
		if !strings.Contains(v.Here, "no such device") {
			t.Errorf("a tty was mapped? %+v", v)
		}
	}
	fits(t, b, filepath.Join(dir, "report", "report.html"), "lab")
	left, err := filepath.Glob(filepath.Join(dir, "tallywheel-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// TestLabStopped: Ctrl-C leaves a report that says it is partial, and nothing else.
func TestLabStopped(t *testing.T) {
	dir := t.TempDir()
	program := testenv.Binary(t)
	t.Setenv("TMPDIR", t.TempDir())
	p := testenv.Start(t, program, "lab", "run", "noise", "crc", "--dir", dir, "--out", filepath.Join(dir, "report"),
		"--budget", "5s")
	testenv.Until(t, 60*time.Second, "the first experiment is reported", func() bool {
		_, err := os.Stat(filepath.Join(dir, "report", "results.json"))
		return err == nil
	})
	if err := p.Cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := p.Cmd.Wait(); err == nil {
		t.Error("a stopped run is a good one")
	}
	r, err := lab.ReadJSON(filepath.Join(dir, "report", "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	if !r.Partial || r.Experiments[0].Find("copy/a", nil) == nil {
		t.Errorf("partial %v, %d experiments", r.Partial, len(r.Experiments))
	}
	left, err := filepath.Glob(filepath.Join(dir, "tallywheel-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// TestHeatMapFits looks at the page of a trace.
func TestHeatMapFits(t *testing.T) {
	b := startBrowser(t)
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "some.trace"))
	if err != nil {
		t.Fatal(err)
	}
	if err := trace.Start(f); err != nil {
		t.Skipf("SKIPPED: another trace is under way: %v; run without -trace", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 100 {
			if _, err := os.ReadFile("/proc/self/stat"); err != nil {
				t.Error(err)
			}
		}
	}()
	<-done
	trace.Stop()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(testenv.Binary(t), "lab", "trace", f.Name(), "--out", filepath.Join(dir, "trace.html"))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "what blocked most") {
		t.Fatalf("%v\n%s", err, out)
	}
	fits(t, b, filepath.Join(dir, "trace.html"), "heatmap")
}

// TestLabCrashes: killed again and again, an isolated recorder loses no byte and stores none twice,
// and one in one process names all that is missing.
func TestLabCrashes(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: its turns take some seconds; run it without -short")
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", t.TempDir())
	cmd := exec.Command(testenv.Binary(t), "lab", "run", "recorder-crash", "--only", "tallywheel", "--budget", "1s",
		"--out", "report")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r, err := lab.ReadJSON(filepath.Join(dir, "report", "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Experiments) != 1 || len(r.Experiments[0].Rows) != 3 {
		t.Fatalf("results: %+v", r)
	}
	for _, row := range r.Experiments[0].Rows {
		sum := func(m lab.Metric) (all float64) {
			for _, x := range row.Metrics[m.String()].Samples {
				all += x
			}
			return all
		}
		lost, unsent, doubled, unnamed := sum(lab.LostPerEvent), sum(lab.UnsentPerEvent), sum(lab.DoubledPerEvent),
			sum(lab.UnnamedPerEvent)
		t.Logf("%s: lost %.0f, unsent %.0f, doubled %.0f, unnamed %.0f B an event", row.Contestant, lost, unsent, doubled,
			unnamed)
		if row.NotRun != "" || sum(lab.Events) == 0 || doubled+unnamed > 0 {
			t.Errorf("%s: struck %.0f times: %.0f B twice, %.0f not named an event %s", row.Contestant, sum(lab.Events),
				doubled, unnamed, row.NotRun)
		}
		if isolated := strings.HasPrefix(row.Contestant, "tallywheel/process"); isolated && lost+unsent > 0 {
			t.Errorf("%s: %.0f B lost, %.0f that nobody took an event", row.Contestant, lost, unsent)
		} else if !isolated && lost+unsent == 0 {
			t.Errorf("%s: nothing is missing, so nothing was struck", row.Contestant)
		}
	}
}
