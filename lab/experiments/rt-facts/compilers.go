package rtfacts

import (
	"cmp"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

// constFlag asks the compiler.
func constFlag(*contestant.Turn) (contestant.Finding, error) {
	taken, first, err := said("", "gcc", "apt install gcc", "-fconstexpr", "-fsyntax-only", "-x", "c", "-")
	return contestant.Finding{Yes: taken, Text: "gcc -fconstexpr: " + first}, err
}

// said is what a compiler says of a source that it only reads: the first line, and whether it takes
// it.
func said(source, compiler, hint string, args ...string) (taken bool, first string, err error) {
	path, err := exec.LookPath(compiler)
	if err != nil {
		return false, "", fmt.Errorf("no %s (%s)", compiler, hint)
	}
	c := exec.Command(path, args...)
	c.Stdin = strings.NewReader(source)
	out, err := c.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return false, "", err
	}
	if err == nil {
		return true, "taken", nil
	}
	for line := range strings.Lines(string(out)) {
		if _, text, ok := strings.Cut(line, "error: "); ok {
			first = strings.TrimSpace(text)
			break
		}
	}
	return false, cmp.Or(first, "refused"), nil
}

// noRecursion asks whether C takes a function that calls itself for a constant.
func noRecursion(*contestant.Turn) (contestant.Finding, error) {
	taken, first, err := said("static int f(int n) { return n < 2 ? 1 : n * f(n - 1); }\n_Static_assert(f(5) == 120, \"\");\n",
		"gcc", "apt install gcc", "-O2", "-fsyntax-only", "-x", "c", "-")
	return contestant.Finding{Yes: !taken, Text: "_Static_assert of a recursive function: " + first}, err
}

// needsNoMangle asks whether a const can be exported at all.
func needsNoMangle(*contestant.Turn) (contestant.Finding, error) {
	taken, first, err := said("#[no_mangle]\npub const SPL_ENTRY_HASH: u32 = 1;\n",
		"rustc", "rustup.rs", "--crate-type=lib", "--emit=mir", "-o", "-", "-")
	return contestant.Finding{Yes: taken, Text: "rustc: " + first}, err
}
