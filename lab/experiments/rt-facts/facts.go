package rtfacts

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

// found is the line of Go's own source that a pattern matches first, below src; "" if none does.
// Its file is read from where Go is installed.
func found(name string, want *regexp.Regexp) (line string, text string, err error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", "", fmt.Errorf("no source of Go: go env GOROOT: %w (go.dev/dl)", err)
	}
	b, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "src", filepath.FromSlash(name)))
	if err != nil {
		return "", "", err
	}
	text = string(b)
	for i, l := range strings.Split(text, "\n") {
		if want.MatchString(l) {
			return fmt.Sprintf("src/%s:%d: %s", name, i+1, strings.TrimSpace(l)), text, nil
		}
	}
	return "", text, nil
}

// function is a function of Go's own source, from its first line, which is line at of its file.
func function(file, name string) (body string, at int, err error) {
	_, text, err := found(file, regexp.MustCompile(`^$`))
	if err != nil {
		return "", 0, err
	}
	before, body, ok := strings.Cut(text, "\nfunc "+name+"(")
	if !ok {
		return "", 0, fmt.Errorf("src/%s has no %s any more", file, name)
	}
	body, _, _ = strings.Cut(body, "\n}")
	return "func " + name + "(" + body, strings.Count(before, "\n") + 2, nil
}

// shows answers by whether a line of Go's source is what it is said to be.
func shows(name, pattern string) (contestant.Finding, error) {
	line, _, err := found(name, regexp.MustCompile(pattern))
	if err == nil && line == "" {
		err = fmt.Errorf("src/%s has no line %q any more", name, pattern)
	}
	return contestant.Finding{Yes: true, Text: line}, err
}

// crossVariable asks the Go command for its variables.
func crossVariable(*contestant.Turn) (contestant.Finding, error) {
	out, err := exec.Command("go", "env", "-json").Output()
	if err != nil {
		return contestant.Finding{}, fmt.Errorf("go env: %w (go.dev/dl)", err)
	}
	yes := strings.Contains(string(out), `"GOCROSSCOMPILE"`)
	return contestant.Finding{
		Yes: yes,
		Text: fmt.Sprintf("go env lists %d variables; GOCROSSCOMPILE is among them: %v",
			strings.Count(string(out), "\n\t\""), yes),
	}, nil
}

func goroutineStack(*contestant.Turn) (contestant.Finding, error) {
	return shows("runtime/stack.go", `^\s*stackMin\s*=\s*2048`)
}

func sysmonAsks(*contestant.Turn) (contestant.Finding, error) {
	return shows("runtime/proc.go", `forcePreemptNS\s*=\s*10 \* 1000 \* 1000`)
}

// goschedQueue looks into the function behind Gosched.
func goschedQueue(*contestant.Turn) (contestant.Finding, error) {
	body, _, err := function("runtime/proc.go", "goschedImpl")
	if err != nil {
		return contestant.Finding{}, err
	}
	yes := strings.Contains(body, "globrunqput(gp)")
	return contestant.Finding{Yes: yes, Text: fmt.Sprintf("runtime.goschedImpl calls globrunqput(gp): %v", yes)}, nil
}

// allocatorPage asks how large a page of Go's allocator is.
func allocatorPage(*contestant.Turn) (contestant.Finding, error) {
	line, _, err := found("internal/runtime/gc/sizeclasses.go", regexp.MustCompile(`PageShift\s*=`))
	if err != nil {
		return contestant.Finding{}, err
	}
	if line == "" {
		return contestant.Finding{}, errors.New("the size of a page does not stand where it did")
	}
	return contestant.Finding{Yes: regexp.MustCompile(`=\s*12$`).MatchString(line), Text: line}, nil
}

// heapAtStart asks which function makes the heap.
func heapAtStart(*contestant.Turn) (contestant.Finding, error) {
	line, text, err := found("runtime/malloc.go", regexp.MustCompile(`^\tmheap_\.init\(\)`))
	if err != nil {
		return contestant.Finding{}, err
	}
	before, _, ok := strings.Cut(text, "\tmheap_.init()")
	if !ok {
		return contestant.Finding{}, errors.New("src/runtime/malloc.go does not make the heap any more")
	}
	functions := regexp.MustCompile(`(?m)^func (\w+)`).FindAllStringSubmatch(before, -1)
	in := functions[len(functions)-1][1]
	return contestant.Finding{Yes: strings.HasPrefix(in, "startTheWorld"), Text: line + ", in " + in}, nil
}

// hugePageField looks for a field of smaps.
func hugePageField(*contestant.Turn) (contestant.Finding, error) {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return contestant.Finding{}, err
	}
	defer f.Close()
	fields := map[string]bool{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if name, _, ok := strings.Cut(lines.Text(), ":"); ok && !strings.Contains(name, " ") {
			fields[name] = true
		}
	}
	yes := fields["HugePageSize"]
	return contestant.Finding{
		Yes: yes,
		Text: fmt.Sprintf("HugePageSize: %v; KernelPageSize: %v; MMUPageSize: %v", yes, fields["KernelPageSize"],
			fields["MMUPageSize"]),
	}, lines.Err()
}
