package report_test

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/report"
)

var update = flag.Bool("update", false, "write the expected reports anew")

// sample is results in which everything occurs that a report shows.
func sample() *lab.Results {
	figure := func(unit string, samples ...float64) lab.Figure { return lab.Summarise(unit, samples) }
	row := func(contestant string, ports string, cpu ...float64) lab.Row {
		return lab.Row{Contestant: contestant, Params: lab.Params{"ports": ports}, Metrics: map[string]lab.Figure{
			"cpu_us_per_op": figure("µs", cpu...), "latency_us_p50": figure("µs", 40, 41, 42, 43, 44),
			"latency_us_p90": figure("µs", 80, 81, 82, 83, 84),
			"latency_us_p99": figure("µs", 400, 410, 420, 430, 440), "rss_bytes": figure("B", 12<<20),
		}}
	}
	article := lab.SerialArticle.Says("1", "")
	return &lab.Results{
		Schema: lab.Schema, Started: time.Date(2026, 11, 20, 7, 30, 0, 0, time.UTC), Command: "tallywheel lab all",
		Partial: true,
		Machine: lab.Machine{
			OS: "linux", Arch: "amd64", Kernel: "6.18.0", CPU: "A CPU <of> kind", CPUs: 2,
			MemoryBytes: 24 << 30, Go: "go1.26.8", Disk: "ext4, 251 GiB",
		},
		Experiments: []lab.ExperimentResult{
			{
				Name: "serial-ports", Plane: "serial", Question: "What do ports cost?", Method: "Ports & more ports.",
				Base:  "c/epoll",
				Shown: []string{"cpu_us_per_op", "latency_us_p50", "latency_us_p99", "rss_bytes", "lost_frames"},
				Chart: lab.Chart{Over: "ports"}, Rounds: 5, Seconds: 31.5,
				Advice:   "Use the ring: 6.5 µs.",
				Warnings: []string{"the machine was busy: 20 % of its CPU time went to others"},
				Rows: []lab.Row{
					row("c/epoll", "1", 5.0, 5.1, 5.2, 5.3, 5.4, 5.2, 5.1, 5.0),
					row("tallywheel/ring", "1", 6.9, 6.5, 6.6, 6.7, 6.8, 6.5, 6.7, 6.6),
					row("os.File", "1", 5.0, 5.1, 5.3, 5.2, 5.5, 5.1, 5.2, 4.9),
					{
						Contestant: "rust|blocking", Params: lab.Params{"ports": "1"}, NotRun: "no rustc (rustup.rs)",
						Note: "checks no CRC",
					},
					row("c/epoll", "256", 2.0, 2.1, 2.2), row("tallywheel/ring", "256", 2.4, 2.5, 2.6),
				},
				Verdicts: []lab.Verdict{
					{
						Claim: "468 KB/s at 115,200 baud.", Seed: "468 KB/s", Here: "11.5 KB/s",
						Verdict: lab.Impossible,
						Why:     "8N1 takes ten bits a byte.", Source: &article,
					},
					{
						Claim: "One thread reads all.", Seed: "this project: ≤ ⅓×", Here: "0.28×",
						Verdict: lab.Reproduced,
						Why:     "No goroutine is woken.", Goal: true,
					},
					// of before claims had sources
					{
						Claim: "A | in a claim.", Seed: "1", Here: "–", Verdict: lab.NotMeasurable,
						Why: "not measured: a bar",
					},
					{
						Claim: "Twice as fast.", Seed: "2×", Needed: "≥ 2×", Here: "1.30× (0.90–2.10)",
						Verdict: lab.NotMeasurable, Reason: lab.TooNoisy, Why: "Too noisy: the interval is on both sides of 2×.", Source: &article,
					},
				},
			},
			{
				Name: "crc", Plane: "memory", Question: "What does a CRC cost?", Method: "CRCs.",
				Shown: []string{"ns_per_op"}, Failed: "no room on the disk",
			},
		},
	}
}

func TestGolden(t *testing.T) {
	r := sample()
	for name, write := range map[string]func(io.Writer) error{
		"report.md":    func(w io.Writer) error { return report.Markdown(w, r) },
		"report.html":  func(w io.Writer) error { return report.HTML(w, r) },
		"table.txt":    func(w io.Writer) error { return report.Table(w, &r.Experiments[0]) },
		"verdicts.txt": func(w io.Writer) error { return report.Verdicts(w, r) },
		"compare.txt":  func(w io.Writer) error { return report.Comparison(w, r, sample()) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(name, err)
		}
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b.Bytes(), want) {
			t.Errorf("%s is not what it was; if it should not be: make golden\n%s", name, b.String())
		}
	}
}

// TestPageNeedsNoScript: tables, charts and verdicts are in the page itself, and nothing is fetched
// from anywhere.
func TestPageNeedsNoScript(t *testing.T) {
	var b bytes.Buffer
	if err := report.HTML(&b, sample()); err != nil {
		t.Fatal(err)
	}
	page := strings.ReplaceAll(b.String(), lab.SerialArticle.Link, "") // a reader may follow it; no page does by itself
	for _, never := range []string{"<script", "http://", "https://", "url(", "@import", "ZgotmplZ", "<of>"} {
		if strings.Contains(page, never) {
			t.Errorf("the page has %q in it", never)
		}
	}
	for _, want := range []string{
		"<svg", "<table", "468 KB/s", "no difference", "not run: no rustc",
		"A CPU &lt;of&gt; kind", "Use the ring", "too few rounds", "The run was stopped", "no room on the disk",
		"Goals of this project", "000, chapter 1", "Reading a COM port in Go", "All claims",
		`<td data-head="document">000, 1</td>`,
		"3 published claims: 1 impossible, 2 not measurable here; 1 goals of this project: 1 reproduced",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// TestNothingIsObeyed: what results say in HTML or to a terminal stays text.
func TestNothingIsObeyed(t *testing.T) {
	r := sample()
	const evil = "\x1b[2J<script>\u202e"
	e := &r.Experiments[0]
	r.Machine.CPU, e.Question, e.Rows[0].Contestant, e.Verdicts[0].Claim, e.Verdicts[0].Here = evil, evil, evil, evil,
		evil
	for name, write := range map[string]func(io.Writer) error{
		"md":       func(w io.Writer) error { return report.Markdown(w, r) },
		"html":     func(w io.Writer) error { return report.HTML(w, r) },
		"table":    func(w io.Writer) error { return report.Table(w, e) },
		"verdicts": func(w io.Writer) error { return report.Verdicts(w, r) },
		"compare":  func(w io.Writer) error { return report.Comparison(w, r, r) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(name, err)
		}
		never := "\x1b"
		if name == "md" || name == "html" {
			never = "<script"
		}
		if strings.Contains(b.String(), never) {
			t.Errorf("%s: %q is in it", name, never)
		}
	}
}

// TestComparisonOfLittle: too few rounds show no difference, and nothing is not compared.
func TestComparisonOfLittle(t *testing.T) {
	r := sample()
	row := func(name string, v ...float64) lab.Row {
		return lab.Row{
			Contestant: name, Params: lab.Params{},
			Metrics: map[string]lab.Figure{"ns_per_op": lab.Summarise("ns", v)},
		}
	}
	r.Experiments = []lab.ExperimentResult{{
		Name: "crc", Shown: []string{"ns_per_op"},
		Rows: []lab.Row{row("few", 1, 1), row("nothing", 0, 0, 0, 0, 0)},
	}}
	var b bytes.Buffer
	if err := report.Comparison(&b, r, r); err != nil {
		t.Fatal(err)
	}
	if s := b.String(); !strings.Contains(s, "1.00×, too few rounds") || strings.Contains(s, "nothing") {
		t.Error(s)
	}
}

// TestComparisonWithZero: what lost nothing once and something the other time is shown.
func TestComparisonWithZero(t *testing.T) {
	of := func(figures map[string]float64) *lab.Results {
		r := sample()
		e := lab.ExperimentResult{Name: "crc", Shown: []string{"ns_per_op"}}
		for name, x := range figures {
			e.Rows = append(e.Rows, lab.Row{Contestant: name, Params: lab.Params{}, Metrics: map[string]lab.Figure{
				"ns_per_op": lab.Summarise("ns", []float64{x, x, x, x, x, x, x, x}),
			}})
		}
		r.Experiments = []lab.ExperimentResult{e}
		return r
	}
	for want, c := range map[string][2]map[string]float64{
		"crc, a":                           {{"a": 0, "b": 0}, {"a": 7, "b": 0}},
		"all figures that they have in co": {{"a": 0}, {"a": 0}},
		"they have no contestant in commo": {{"a": 0}, {"b": 1}},
	} {
		var b bytes.Buffer
		if err := report.Comparison(&b, of(c[0]), of(c[1])); err != nil {
			t.Fatal(err)
		}
		if s := b.String(); !strings.Contains(s, want) || strings.Contains(s, "crc, b") {
			t.Errorf("want %q: %s", want, s)
		}
	}
}

// TestWriteReplacesWhole: a report is replaced only by a whole one.
func TestWriteReplacesWhole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "report")
	for range 2 {
		if err := report.Write(dir, sample()); err != nil {
			t.Fatal(err)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 4 {
		t.Errorf("%d files, want 4: %v %v", len(files), files, err)
	}
	if _, err := lab.ReadJSON(filepath.Join(dir, "results.json")); err != nil {
		t.Error(err)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1", 9999: "9999", 12345: "12.3 k", 463520: "464 k", 1234567: "1.23 M", 15.04: "15.0", 1.234: "1.23",
		0.0123: "0.0123", 0.000012: "1.2e-05", 250: "250", 2.5e9: "2.50 G",
	} {
		if got := report.Number(v); got != want {
			t.Errorf("%g is shown as %s, want %s", v, got, want)
		}
	}
}
