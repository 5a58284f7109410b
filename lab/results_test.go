package lab_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/perf/benchfmt"

	"github.com/tallywheel/tallywheel/lab"
)

// TestResults: what is written as JSON fits the schema and is read again unchanged, and Go's own
// reader of benchmarks takes the text.
func TestResults(t *testing.T) {
	a := our("a")
	e := &lab.Experiment{
		Name: "test-results", Plane: lab.Memory, Question: "?", Method: ".", Metrics: []lab.Metric{lab.NsPerOp},
		Base:        a,
		Cells:       func(lab.Options) []lab.Params { return []lab.Params{{"depth": "8", "how": "with care"}} },
		Contestants: []*lab.Contestant{a, our("b/c"), our("refuses")},
		Claims: []lab.Claim{{
			Claim: "a holds", Source: lab.NetworkArticle.Says("1", "1"),
			Judge: func(lab.View) (lab.Verdict, bool) {
				return lab.CannotBe("0", "because"), true
			},
		}},
	}
	result, err := run(t, t.Context(), quickly(t), e)
	if err != nil {
		t.Fatal(err)
	}
	r := &lab.Results{
		Schema: lab.Schema, Started: time.Now().UTC(), Machine: lab.ThisMachine(""),
		Experiments: []lab.ExperimentResult{result},
	}
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	valid(t, b.Bytes())
	path := t.TempDir() + "/results.json"
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := lab.ReadJSON(path)
	if err != nil {
		t.Fatal(err)
	}
	var b2 bytes.Buffer
	if err := again.WriteJSON(&b2); err != nil || b2.String() != b.String() {
		t.Errorf("read and written again it differs: %v", err)
	}
	if !strings.Contains(b.String(), `"depth": 8`) {
		t.Error("a number among the parameters is not a number")
	}

	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	lines, contestants := 0, map[string]bool{}
	for rd := benchfmt.NewReader(&text, "results.txt"); rd.Scan(); {
		switch rec := rd.Result().(type) {
		case *benchfmt.Result:
			lines++
			contestants[rec.GetConfig("contestant")] = true
			if v, ok := rec.Value("ns_per_op"); !ok || v <= 0 ||
				rec.Name.String() != "TestResults/depth=8/how=with_care" {
				t.Errorf("line %s: %v", rec.Name, rec.Values)
			}
		case *benchfmt.SyntaxError:
			t.Error(rec)
		}
	}
	if lines != 2*result.Rounds || !contestants["b/c"] {
		t.Errorf("%d lines of %v, %d rounds", lines, contestants, result.Rounds)
	}
}

// valid holds results against schema.json.
func valid(t *testing.T, results []byte) {
	t.Helper()
	c := jsonschema.NewCompiler()
	schema, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(results, &v); err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(v); err != nil {
		t.Error(err)
	}
}

// TestSchemaRefuses: the schema can fail.
func TestSchemaRefuses(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		`{}`,
		`{"schema":1,"started":"x","command":"","machine":{},"experiments":[{"name":"x","rows":[{"contestant":"a","params":{}}],"verdicts":[]}]}`,
		`{"schema":1,"started":"2026-11-20T00:00:00Z","command":"","machine":{"os":"linux","arch":"amd64","kernel":"","cpu":"","cpus":2,"memory_bytes":1,"go":""},"experiments":[{"name":"x","plane":"p","question":"?","method":"","shown":[],"chart":{},"rounds":1,"seconds":1,"rows":[],"verdicts":[{"claim":"","seed":"","here":"","why":"","verdict":"perhaps"}]}]}`,
	} {
		var v any
		if err := json.Unmarshal([]byte(bad), &v); err != nil {
			t.Fatal(err)
		}
		if schema.Validate(v) == nil {
			t.Errorf("the schema takes %s", bad)
		}
	}
}

func TestReadJSONRefusesOthers(t *testing.T) {
	path := t.TempDir() + "/results.json"
	for text, want := range map[string]string{"{": "unexpected EOF", `{"schema":99}`: "schema 99"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := lab.ReadJSON(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestReferences: the results that are kept can be read, are whole, and fit the schema.
func TestReferences(t *testing.T) {
	files, err := filepath.Glob("results/*.json.gz")
	if err != nil || len(files) == 0 {
		t.Fatalf("no reference is kept: %v", err)
	}
	for _, path := range files {
		r, err := lab.ReadJSON(path)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := r.WriteJSON(&b); err != nil {
			t.Fatal(err)
		}
		valid(t, b.Bytes())
		if r.Partial || r.Machine.Kernel == "" || r.Machine.CPU == "" || r.Started.IsZero() {
			t.Errorf("%s: partial %v, of %+v", path, r.Partial, r.Machine)
		}
		for _, e := range r.Experiments {
			if len(e.Rows) == 0 || len(e.Verdicts) == 0 || e.Failed != "" {
				t.Errorf("%s: %s has no rows or no verdicts: %s", path, e.Name, e.Failed)
			}
			for _, row := range e.Rows {
				if (row.Metrics == nil) == (row.NotRun == "") {
					t.Errorf("%s: %s, %s: figures and a reason for none, or neither", path, e.Name, row.Contestant)
				}
			}
		}
	}
}
