package lab_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"testing"
)

// callOf is a call of a verdict's function, and the claim that it judges: its name in package
// claims, or, of a goal, its text.
type callOf struct {
	function, claim, first string
	at                     token.Position
}

// callsOf finds in the experiments who calls functions of package lab. Whatever is outside a claim
// is named by the function that it is in.
func callsOf(t *testing.T, names ...string) (all []callOf) {
	t.Helper()
	files, err := filepath.Glob("experiments/*/*.go")
	if err != nil || len(files) < 60 {
		t.Fatalf("%d files of experiments: %v", len(files), err)
	}
	for _, path := range files {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		folder := filepath.Base(filepath.Dir(path))
		var above []string // the claims around a node, "" where it makes none
		ast.Inspect(file, func(n ast.Node) bool {
			if n == nil {
				above = above[:len(above)-1]
				return true
			}
			above = append(above, claimOf(n))
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			for _, name := range names {
				if is(call.Fun, "lab", name) {
					claim := ""
					for _, a := range above {
						if a != "" {
							claim = a
						}
					}
					first := ""
					if len(call.Args) > 0 {
						if l, ok := call.Args[0].(*ast.BasicLit); ok {
							first = l.Value
						}
					}
					all = append(all, callOf{name, folder + ": " + claim, first, set.Position(call.Pos())})
				}
			}
			return true
		})
	}
	return all
}

// claimOf names the claim that a node is, or the function; "" if it is neither.
func claimOf(n ast.Node) string {
	switch n := n.(type) {
	case *ast.FuncDecl:
		return "func " + n.Name.Name
	case *ast.CallExpr: // claims.Name.Judged(…)
		if judged, ok := n.Fun.(*ast.SelectorExpr); ok && judged.Sel.Name == "Judged" {
			if claim, ok := judged.X.(*ast.SelectorExpr); ok {
				return claim.Sel.Name
			}
		}
	case *ast.CompositeLit: // {Claim: "…", …}
		for _, e := range n.Elts {
			if pair, ok := e.(*ast.KeyValueExpr); ok {
				if key, ok := pair.Key.(*ast.Ident); ok && key.Name == "Claim" {
					if text, ok := pair.Value.(*ast.BasicLit); ok {
						s, _ := strconv.Unquote(text.Value)
						return s
					}
				}
			}
		}
	}
	return ""
}

func is(e ast.Expr, pkg, name string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg && s.Sel.Name == name
}

// exact lists the judges that may use Holds, with what they count or look up. What has a spread, as
// a time, a rate or a share, is judged by rounds, with a bound and a band in which nothing is sure:
// AtLeast, AtMost, Never, RateAtMost and their like.
var exact = map[string]string{
	"binary-size: func claim":    "bytes of files",
	"file-misuse: ScannerCalls":  "system calls",
	"http-plaintext: ThreadPool": "threads: a few, or hundreds",
	"kernel-facts: StatxFsync":   "what a ring can do",
	"process-ipc: PipeOneWay":    "that each can carry a conversation",
	"rt-const: SameConstants":    "two constants",
	"rt-const: TrimmedConstants": "that the check holds, and bytes of files",
	"rt-event: EdgeBySignal":     "by what an edge is told",
	"rt-path: The stages of a wake-up add up to the latency that the program sees.": "a sum, within a rounding",
	"rt-memory: ArenaFragments":           "allocations that failed; an arena that is empty",
	"serial-buffer: BufferCalls":          "system calls",
	"serial-mmap: MappedPort":             "whether mmap is refused",
	"serial-mmap: MapRefused":             "whether mmap is refused",
	"serial-read: SelectTimeout":          "system calls, and an error's text",
	"syscalls: RuntimeUring":              "system calls",
	"syscalls: BatchedCalls":              "system calls",
	"http-plaintext: CallsPerRequest":     "system calls",
	"process-million: MillionConnections": "connections",
	"serial-model: Framing":               "arithmetic",
	"serial-model: ClockLoss":             "arithmetic",
	"serial-model: NeedsDMA":              "arithmetic",
	"http-plaintext: A ring needs a quarter of a system call for each request.": "system calls",
}

// TestHoldsIsForCounts: a judge uses Holds only for what is counted exactly or looked up. A verdict
// on a median by Holds has no rounds, no look at the machine and no band: it flips from run to run.
func TestHoldsIsForCounts(t *testing.T) {
	found := map[string]bool{}
	for _, c := range callsOf(t, "Holds") {
		found[c.claim] = true
		if exact[c.claim] == "" {
			t.Errorf("%s: %q is judged by Holds; if it counts or looks up, list it as exact, else judge its rounds",
				c.at, c.claim)
		}
	}
	for claim := range exact {
		if !found[claim] {
			t.Errorf("%q is judged by Holds no more: take it off the list", claim)
		}
	}
}

// TestImpossibleShowsWhy: a verdict that something cannot be shows what was found here, and does
// not stand whatever was found.
func TestImpossibleShowsWhy(t *testing.T) {
	for _, c := range callsOf(t, "CannotBe") {
		if c.first == `"–"` || c.first == `""` {
			t.Errorf("%s: %q is impossible, and nothing is shown", c.at, c.claim)
		}
	}
}
