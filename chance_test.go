package tallywheel

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Tests that play few of their rounds with the race detector, or none, are run once more without
// it: the Makefile lists them in CHANCE, and their folders in CHANCE_IN, and has no more than there
// is.
func TestChance(t *testing.T) {
	b, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	listed := func(name string) string {
		m := regexp.MustCompile(`(?m)^` + name + ` *:= (.*)$`).FindSubmatch(b)
		if m == nil {
			t.Fatalf("Makefile: no %s", name)
		}
		return string(m[1])
	}
	folders, patterns := strings.Fields(listed("CHANCE_IN")), strings.Split(listed("CHANCE"), "|")
	names := regexp.MustCompile("^(" + listed("CHANCE") + ")$")
	var found []string // tests of chance
	var in []string
	err = filepath.WalkDir(".", func(path string, e os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != "." && (e.Name()[0] == '.' || e.Name() == "testdata"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go") || path == "chance_test.go":
			return nil
		}
		src, err := os.ReadFile(path)
		if tests := chanceIn(string(src)); len(tests) > 0 {
			found = append(found, tests...)
			in = append(in, "./"+filepath.ToSlash(filepath.Dir(path)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range found {
		if !names.MatchString(name) {
			t.Errorf("%s plays few rounds with the race detector: add it to CHANCE of the Makefile", name)
		}
	}
	for _, p := range patterns {
		if !slices.ContainsFunc(found, regexp.MustCompile("^("+p+")$").MatchString) {
			t.Errorf("Makefile: CHANCE has %s, and there is no such test", p)
		}
	}
	slices.Sort(folders)
	slices.Sort(in)
	if in = slices.Compact(in); !slices.Equal(in, folders) {
		t.Errorf("Makefile: CHANCE_IN is %v, want %v", folders, in)
	}
}

// chanceIn lists the tests of a file whose rounds testenv decides, by themselves or by a flag, and
// those that skip with the race detector.
func chanceIn(src string) (tests []string) {
	by := []string{"testenv.Rounds(", "testenv.CheckFew(", "run it without -race"}
	for _, m := range regexp.MustCompile(`(?m)^(?:var|\t)\s*(\w+)\s*=\s*flag\.Int\(.*testenv\.Rounds\(`).
		FindAllStringSubmatch(src, -1) {
		by = append(by, "*"+m[1])
	}
	for _, f := range strings.Split(src, "\nfunc ")[1:] {
		name, _, _ := strings.Cut(f, "(")
		decides := func(w string) bool { return strings.Contains(f, w) }
		if strings.HasPrefix(name, "Test") && slices.ContainsFunc(by, decides) {
			tests = append(tests, name)
		}
	}
	return tests
}
