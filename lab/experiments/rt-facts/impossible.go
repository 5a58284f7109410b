package rtfacts

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

// scheduleChecks asks what runtime.schedule does with the request to yield at its entry.
func scheduleChecks(*contestant.Turn) (contestant.Finding, error) {
	const name = "schedule"
	body, at, err := function("runtime/proc.go", name)
	if err != nil {
		return contestant.Finding{}, err
	}
	for i, line := range strings.Split(body, "\n") {
		if line = strings.TrimSpace(line); line == "pp.preempt = false" {
			return contestant.Finding{Text: fmt.Sprintf("src/runtime/proc.go:%d: func %s takes the request back: %s",
				at+i, name, line)}, nil
		}
	}
	return contestant.Finding{}, errors.New("src/runtime/proc.go: schedule does not take the request back any more")
}

// counterOfA7 asks Go's assemblers for the instruction: that of AArch64 and that of the 32-bit ARM
// which a Cortex-A7 is.
func counterOfA7(*contestant.Turn) (f contestant.Finding, err error) {
	dir, err := os.MkdirTemp("", "tallywheel-asm-")
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	const instruction = "MRS CNTVCT_EL0, R0"
	source := filepath.Join(dir, "counter.s")
	text := "TEXT ·counter(SB), 4, $0-0\n\t" + instruction + "\n\tRET\n"
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		return f, err
	}
	assemble := func(arch string) (refused string, err error) {
		c := exec.Command("go", "tool", "asm", "-p", "main", "-o", filepath.Join(dir, arch+".o"), source)
		c.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch)
		out, err := c.CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			return "", fmt.Errorf("go tool asm: %w (go.dev/dl)", err)
		}
		first, _, _ := strings.Cut(string(out), "\n")
		_, reason, _ := strings.Cut(first, "counter.s:2: ")
		if err != nil && reason == "" {
			return "", fmt.Errorf("go tool asm: %s", first)
		}
		return reason, nil
	}
	of64, err := assemble("arm64")
	if err != nil {
		return f, err
	}
	if of64 != "" {
		return f, fmt.Errorf("the assembler of arm64 does not know %s: %s", instruction, of64)
	}
	of32, err := assemble("arm")
	if err != nil {
		return f, err
	}
	said := "taken"
	if of32 != "" {
		said = of32
	}
	return contestant.Finding{
		Yes:  of32 == "",
		Text: fmt.Sprintf("go tool asm, %s: GOARCH=arm64: taken; GOARCH=arm: %s", instruction, said),
	}, nil
}

// initCall looks for the kernel's section of initcalls in a Go program: this one.
func initCall(*contestant.Turn) (contestant.Finding, error) {
	program, err := elf.Open("/proc/self/exe")
	if err != nil {
		return contestant.Finding{}, err
	}
	defer program.Close()
	in := slices.ContainsFunc(program.Sections,
		func(s *elf.Section) bool { return strings.Contains(s.Name, "initcall") })
	return contestant.Finding{
		Yes: in,
		Text: fmt.Sprintf("this Go program has %d sections; one of initcalls is among them: %v",
			len(program.Sections), in),
	}, nil
}
