package tallywheel

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const module = "github.com/tallywheel/tallywheel"

// layers lists the folders from the ground up. A folder may import folders of lower layers, and its
// own sub-folders.
var layers = [][]string{
	{
		"crc16", "internal/sys", "internal/http1", "internal/hist", "internal/beat", "internal/pack", "internal/fault",
		"internal/testenv", "internal/early",
	},
	{"frame", "ledger", "ring", "rt", "uring", "admission", "steal", "proof"},
	{
		"serial", "reader", "asyncfile", "seglog", "server", "loadgen", "prefork", "ipc", "internal/spool",
		"internal/sockets",
	},
	{"archive", "config", "doctor", "probe", "internal/isolate", "cell", "memfrag"},
	{"recorder", "export", "replay", "forward"},
	{"api", "tap"},
	{"lab"},
	{"cmd/tallywheel", "examples", "e2e"},
}

// sharp lists imports that only some folders may have: those of layers with all that is in them, or
// single ones.
var sharp = map[string][]string{
	"unsafe":                      {"internal/sys", "uring", "ring", "crc16", "e2e/guest/init"},
	"golang.org/x/sys/unix":       {"internal/sys", "uring", "e2e/guest/init"},
	"golang.org/x/sys/windows":    {"internal/sys"},
	"golang.org/x/sys/cpu":        {"crc16"},
	"github.com/prometheus/":      {"api", "server/prom", "probe", "cmd/tallywheel", "e2e"},
	"github.com/goccy/":           {"config"},
	"github.com/spf13/":           {"cmd/tallywheel"},
	"github.com/HdrHistogram/":    {"loadgen"},
	"github.com/cilium/":          {"probe"},
	"golang.org/x/perf/":          {"lab"},
	"golang.org/x/exp/":           {"lab"},
	"golang.org/x/mod/":           {"proof"},
	"golang.org/x/tools/":         {"lab"},
	"github.com/parquet-go/":      {"export", "lab"},
	"github.com/nats-io/":         {"forward"},
	"github.com/eclipse/":         {"forward"},
	"github.com/stretchr/":        {},
	"C":                           {},
	module + "/internal/fault":    {"seglog", "recorder"},
	module + "/serial/serialtest": {"lab", "cmd/tallywheel"},
	module + "/internal/testenv":  {},
}

// Limits of size, in lines. They are a sign to look for the missing idea, so tests and data are not
// counted.
const (
	maxFile     = 600
	maxFunction = 70
)

// The last columns of a comment, and of code. A tab is four. A message may go beyond, for who looks
// for it looks for all of it.
const (
	maxProse = 100
	maxCode  = 120
	aMessage = 40 // columns of a string that is one
)

func width(line string) int { return utf8.RuneCountInString(line) + 3*strings.Count(line, "\t") }

var forbiddenNames = []string{"pkg", "util", "utils", "common", "types", "helpers", "misc"}

// inspect returns every rule that the Go files below root break, one line each.
func inspect(root fs.FS) (broken []string) {
	complain := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	documented := map[string]bool{}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
				return fs.SkipDir
			}
			if _, err := fs.Stat(root, path.Join(name, "go.mod")); err == nil && name != "." {
				return fs.SkipDir // a module of its own
			}
			if slices.Contains(forbiddenNames, d.Name()) {
				complain("%s: a folder must not be called %s", name, d.Name())
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		src, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, name, src, parser.ParseComments)
		if err != nil {
			return err
		}
		dir := path.Dir(name)
		if _, ok := documented[dir]; !ok {
			documented[dir] = false
		}
		documented[dir] = documented[dir] || f.Doc != nil
		test := strings.HasSuffix(name, "_test.go")
		if test {
			skips(f, name, complain)
		}
		for _, imp := range f.Imports {
			p := strings.Trim(imp.Path.Value, `"`)
			if why := mayImport(dir, p, test); why != "" {
				complain("%s: imports %s: %s", name, p, why)
			}
		}
		if !test {
			size(set, f, name, complain)
		}
		for i, line := range strings.Split(string(src), "\n") {
			if text := strings.TrimLeft(line, "\t"); strings.HasPrefix(text, "// ") && width(line) > maxProse {
				complain("%s:%d: prose ends at column %d", name, i+1, maxProse)
			}
		}
		for _, line := range wide(src) {
			complain("%s:%d: code ends at column %d", name, line, maxCode)
		}
		if strings.Contains(string(src), "//go:"+"linkname") {
			complain("%s: linkname", name)
		}
		return nil
	})
	if err != nil {
		complain("%v", err)
	}
	for dir, ok := range documented {
		if !ok {
			complain("%s: no package comment", dir)
		}
	}
	slices.Sort(broken)
	return broken
}

// skips complains of tests that are skipped in silence: each says what is missing and, behind a
// semicolon, how to get it. An error alone may say both.
func skips(f *ast.File, name string, complain func(string, ...any)) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		on, ok := method.X.(*ast.Ident)
		if !ok || on.Name != "t" && on.Name != "tb" ||
			!slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, method.Sel.Name) {
			return true
		}
		text := "nothing"
		if len(call.Args) > 0 {
			if a, ok := call.Args[0].(*ast.BasicLit); ok {
				text = a.Value
			}
		}
		if !said.MatchString(text) {
			complain("%s: a test skips without a word: want \"SKIPPED: what is missing; how to get it\", has %s", name,
				text)
		}
		return true
	})
}

var said = regexp.MustCompile(`^"SKIPPED: (.*; .*|%v)"$`)

// wide lists the lines of code that go beyond maxCode, for no message in them.
func wide(src []byte) (lines []int) {
	set := token.NewFileSet()
	file := set.AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, scanner.ScanComments)
	free := map[int]bool{} // lines that have a message
	for {
		pos, kind, text := s.Scan()
		if kind == token.EOF {
			break
		}
		first := file.Line(pos)
		if kind == token.STRING && (len(text) >= aMessage || strings.Contains(text, "\n")) {
			for line := first; line <= first+strings.Count(text, "\n"); line++ {
				free[line] = true
			}
		}
	}
	for i, line := range strings.Split(string(src), "\n") {
		isProse := strings.HasPrefix(strings.TrimLeft(line, "\t"), "//")
		if width(line) > maxCode && !free[i+1] && !isProse {
			lines = append(lines, i+1)
		}
	}
	return lines
}

func size(set *token.FileSet, f *ast.File, name string, complain func(string, ...any)) {
	if n := set.Position(f.End()).Line; n > maxFile {
		complain("%s: %d lines, more than %d", name, n, maxFile)
	}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			if n := set.Position(fn.End()).Line - set.Position(fn.Pos()).Line + 1; n > maxFunction {
				complain("%s: function %s has %d lines, more than %d", name, fn.Name.Name, n, maxFunction)
			}
		}
	}
}

// home returns the folder of the layers that dir belongs to, and its layer; -1 if there is none.
func home(dir string) (string, int) {
	for i, layer := range layers {
		for _, folder := range layer {
			if dir == folder || strings.HasPrefix(dir, folder+"/") {
				return folder, i
			}
		}
	}
	return "", -1
}

// mayImport says why a file in dir must not import p, or nothing. Tests may import serialtest and
// testenv anywhere.
func mayImport(dir, p string, test bool) string {
	if test && (p == module+"/internal/testenv" || p == module+"/serial/serialtest") {
		return ""
	}
	folder, layer := home(dir)
	for prefix, allowed := range sharp {
		if (p == prefix || strings.HasSuffix(prefix, "/") && strings.HasPrefix(p, prefix)) &&
			!slices.Contains(allowed, folder) && !slices.Contains(allowed, dir) {
			return fmt.Sprintf("only for %v", allowed)
		}
	}
	inside, ok := strings.CutPrefix(p, module+"/")
	if !ok {
		return ""
	}
	if layer < 0 {
		if dir == "." {
			return "the map imports nothing"
		}
		return dir + " is in no layer: add it to the map"
	}
	to, below := home(inside)
	switch {
	case below < 0:
		return inside + " is in no layer"
	case to == folder || below < layer:
		return ""
	case below == layer:
		return fmt.Sprintf("%s and %s are of one layer", folder, to)
	}
	return fmt.Sprintf("%s is above %s", to, folder)
}

// walk matches a step of ARCHITECTURE.md: a file in backquotes, and the functions behind it, up to
// the next file.
var walk = regexp.MustCompile("`([a-z0-9_/]+\\.go)`|`((?:[A-Za-z]+\\.)?[A-Za-z]+)`")

// TestArchitectureNamesWhatIs holds the walks of ARCHITECTURE.md to the code: each function that is
// named is in the file before it. Where an arrow leads to a function in the walks of the server,
// one of those before it in the step names it in its body.
func TestArchitectureNamesWhatIs(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, server, _ := strings.Cut(string(text), "\n## The server\n")
	server, _, _ = strings.Cut(server, "\n## ")
	steps, arrows := 0, 0
	for _, step := range regexp.MustCompile(`(?m)^[0-9]+\. .*(\n   .*)*`).FindAllString(string(text), -1) {
		var file string
		functions := map[string]map[string]bool{} // of the files of the step
		named := map[string]bool{}                // in the functions so far
		arrow, end := false, 0
		for _, at := range walk.FindAllStringSubmatchIndex(step, -1) {
			arrow = arrow || strings.Contains(step[end:at[0]], "→")
			end = at[1]
			if at[2] >= 0 {
				file = step[at[2]:at[3]]
				maps.Copy(functions, functionsOf(t, file))
				continue
			}
			name := step[at[4]:at[5]]
			if file == "" {
				continue
			}
			steps++
			names, ok := functions[name]
			if !ok {
				t.Errorf("%s has no %s: %s", file, name, step)
			}
			if arrow && len(named) > 0 && strings.Contains(server, step) {
				arrows++
				if !named[name[strings.LastIndexByte(name, '.')+1:]] {
					t.Errorf("nothing before it leads to %s: %s", name, step)
				}
			}
			arrow = false
			maps.Copy(named, names)
		}
	}
	if steps < 30 || arrows < 20 {
		t.Errorf("%d steps and %d arrows are found", steps, arrows)
	}
}

// functionsOf are the functions of a file, methods as Type.Name, with the names in their bodies.
func functionsOf(t *testing.T, file string) map[string]map[string]bool {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]bool{}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			name := fn.Name.Name
			if fn.Recv != nil {
				of := fn.Recv.List[0].Type
				if star, ok := of.(*ast.StarExpr); ok {
					of = star.X
				}
				if generic, ok := of.(*ast.IndexExpr); ok {
					of = generic.X
				}
				name = of.(*ast.Ident).Name + "." + name
			}
			names := map[string]bool{}
			ast.Inspect(fn, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && id != fn.Name {
					names[id.Name] = true
				}
				return true
			})
			all[name] = names
		}
	}
	return all
}

func TestHouse(t *testing.T) {
	for _, line := range inspect(os.DirFS(".")) {
		t.Error(line)
	}
}

// maxTracked is the most bytes that a file of the repository may have: everyone who clones it has
// each of its versions for good.
const maxTracked = 1 << 20

// TestNoProgramIsTracked fails where a build, or a log, was committed by mistake.
func TestNoProgramIsTracked(t *testing.T) {
	out, err := exec.Command("git", "ls-files", "-z").Output()
	if err != nil {
		t.Skipf("SKIPPED: git does not list the files of the repository (%v); run it in a clone, with git installed", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if st, err := os.Stat(name); err == nil && st.Size() > maxTracked {
			t.Errorf("%s has %d bytes, more than %d: take it out (git rm --cached), and name it in .gitignore", name,
				st.Size(), maxTracked)
		}
	}
}

// TestHouseNoticesViolations plants one of each kind.
func TestHouseNoticesViolations(t *testing.T) {
	dir := t.TempDir()
	long := "package long\n\nfunc f() {\n" + strings.Repeat("\t_ = 1\n", maxFile) + "}\n"
	for name, src := range map[string]string{
		"crc16/up.go": "// Package crc16 is documented.\npackage crc16\n\nimport _ \"" + module +
			"/ledger\"\n",
		"ledger/side.go": "// Package ledger is documented.\npackage ledger\n\nimport _ \"" + module +
			"/ring\"\n",
		"ledger/sharp.go":      "package ledger\n\nimport _ \"unsafe\"\n",
		"ring/undocumented.go": "package ring\n",
		"serial/long.go":       "// Package long is documented.\n" + long,
		"recorder/util/x.go":   "// Package util is documented.\npackage util\n",
		"stray/x.go": "// Package stray is documented.\npackage stray\n\nimport _ \"" + module +
			"/crc16\"\n",
		"recorder/wide.go": "// Package recorder is documented. " + strings.Repeat("x", maxProse) +
			"\npackage recorder\n",
		"recorder/far.go":       "package recorder\n\nvar x = " + strings.Repeat("1 + ", maxCode/4) + "1\n",
		"recorder/skip_test.go": "package recorder\n\nfunc TestX(t *testing.T) { t.Skip(\"no\") }\n",
		"recorder/link.go":      "// Package recorder is documented.\npackage recorder\n\n//go:" + "linkname a b\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found := strings.Join(inspect(os.DirFS(dir)), "\n")
	for _, want := range []string{
		"crc16/up.go: imports " + module + "/ledger: ledger is above crc16",
		"ledger/side.go: imports " + module + "/ring: ledger and ring are of one layer",
		"ledger/sharp.go: imports unsafe: only for",
		"ring: no package comment",
		"serial/long.go: 605 lines, more than 600",
		"serial/long.go: function f has 602 lines, more than 70",
		"recorder/util: a folder must not be called util",
		"stray is in no layer",
		"recorder/skip_test.go: a test skips without a word",
		"recorder/link.go: linkname",
		"recorder/wide.go:1: prose ends at column 100",
		"recorder/far.go:3: code ends at column 120",
	} {
		if !strings.Contains(found, want) {
			t.Errorf("a planted violation is not noticed: %s\nfound:\n%s", want, found)
		}
	}
}
