package report_test

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/template"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	_ "github.com/tallywheel/tallywheel/lab/experiments"
)

// figured finds what stands between marks in a document: <!-- figures: NAME --> … <!-- end -->.
var figured = regexp.MustCompile(`(?s)<!-- figures: ([a-z-]+) -->\n(.*?)<!-- end -->\n`)

// TestFigures: what README.md and the guides say in figures of the laboratory is what the kept
// results say: the text between their marks is made by testdata/figures.tmpl from lab/results.
// `make figures` writes it.
func TestFigures(t *testing.T) {
	made, err := template.New("figures.tmpl").Funcs(figureFuncs()).ParseFiles("testdata/figures.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, file := range []string{"../../README.md", "../../docs/guide/server.md"} {
		figures(t, file, made, seen)
	}
	for _, tmpl := range made.Templates() {
		if name := tmpl.Name(); name != "figures.tmpl" && !seen[name] {
			t.Errorf("no document has a place for the figures %s", name)
		}
	}
}

// figures holds a document against the templates, or writes it anew; seen gets those that it has.
func figures(t *testing.T, file string, made *template.Template, seen map[string]bool) {
	t.Helper()
	is, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := figured.ReplaceAllFunc(is, func(found []byte) []byte {
		name := string(figured.FindSubmatch(found)[1])
		if seen[name] {
			t.Errorf("the figures %s have two places", name)
		}
		seen[name] = true
		var b bytes.Buffer
		if err := made.ExecuteTemplate(&b, name, nil); err != nil {
			t.Errorf("figures: %s: %v", name, err)
			return found
		}
		return fmt.Appendf(nil, "<!-- figures: %s -->\n%s\n<!-- end -->\n", name, strings.TrimSpace(b.String()))
	})
	if *update && !t.Failed() {
		if err := os.WriteFile(file, want, 0o600); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(is, want) {
		t.Errorf("%s does not say what lab/results say: run make figures", file)
	}
}

// figureFuncs are what the templates ask for: run is kept results by name; median, ratio and
// percent are figures of them, cell is a cell by names and values; per, times and plus calculate.
func figureFuncs() template.FuncMap {
	contestant := func(name string) *lab.Contestant { return &lab.Contestant{Name: name} }
	of := func(r *lab.Results, experiment string) (lab.View, error) {
		for i := range r.Experiments {
			if r.Experiments[i].Name == experiment {
				return lab.View{ExperimentResult: &r.Experiments[i]}, nil
			}
		}
		return lab.View{}, fmt.Errorf("no experiment %s", experiment)
	}
	median := func(r *lab.Results, experiment, who string, cell lab.Params, metric string) (float64, error) {
		v, err := of(r, experiment)
		if err != nil {
			return 0, err
		}
		m, ok := v.Median(contestant(who), cell, lab.Named(metric))
		if !ok {
			return 0, fmt.Errorf("%s: no %s of %s at %s", experiment, metric, who, cell)
		}
		return m, nil
	}
	ratio := func(r *lab.Results, experiment, a, b string, cell lab.Params, metric string) (float64, error) {
		v, err := of(r, experiment)
		if err != nil {
			return 0, err
		}
		x, ok := v.Ratio(contestant(a), contestant(b), cell, lab.Named(metric))
		if !ok {
			return 0, fmt.Errorf("%s: no %s of %s and %s at %s", experiment, metric, a, b, cell)
		}
		return x.Median, nil
	}
	cell := func(pairs ...string) lab.Params {
		p := lab.Params{}
		for i := 0; i+1 < len(pairs); i += 2 {
			p[pairs[i]] = pairs[i+1]
		}
		return p
	}
	articles := map[string]bool{}
	for _, p := range claims.All() {
		articles[p.Source.Number] = true
	}
	words := []string{"no", "one", "two", "three", "four", "five"}
	funcs := template.FuncMap{
		"run": func(name string) (*lab.Results, error) {
			return lab.ReadJSON(filepath.Join("..", "results", name+".json.gz"))
		},
		"questions": func() int { return len(lab.Experiments()) },
		"claims":    func() int { return len(claims.All()) },
		"articles":  func() string { return words[len(articles)] },
		"cell":      cell,
		"thousands": thousands,
		"one":       func(v float64) string { return fmt.Sprintf("%.1f %%", v) },
		"two":       func(v float64) string { return fmt.Sprintf("%.2f %%", v) },
		"times":     func(v float64) string { return fmt.Sprintf("%.2f", v) },
		"us":        func(v float64) string { return fmt.Sprintf("%.0f µs", v) },
	}
	maps.Copy(funcs, template.FuncMap{
		"median": median, "ratio": ratio,
		"minus": func(a, b float64) float64 { return a - b }, "over": func(a, b float64) float64 { return a / b },
	})
	return funcs
}

// thousands shows a number to three digits, its thousands apart: 471,000.
func thousands(v float64) string {
	unit := math.Pow(10, math.Floor(math.Log10(v))-2)
	s := fmt.Sprintf("%.0f", math.Round(v/unit)*unit)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
