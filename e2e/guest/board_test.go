package guest

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

var boots = flag.Int("boots", 2, "how many boots TestBoard compares; make soak has ten")

// board is a machine with one Cortex-A7, whose time goes by instructions: nothing of the host is in
// it, so that a run is the same each time, to the last bit.
var board = strings.Fields("-M virt,dtb-randomness=off -cpu cortex-a7 -icount shift=3,sleep=off,align=off " +
	"-rtc base=2026-01-01,clock=vm -seed 1 -m 512 -smp 1 -display none -monitor none -serial stdio -no-reboot")

// TestBoard runs our program for ARMv7 on Debian's kernel for boards: a cell keeps 5 ms, and boots
// are alike in each figure that it prints.
func TestBoard(t *testing.T) {
	kernel := kernels(t, "armmp")
	qemu := testenv.Program(t, "qemu-system-arm", install)
	const periods = 200
	plan := filepath.Join(t.TempDir(), "plan")
	var commands [][]string
	for _, style := range []string{"cell", "ticker"} {
		commands = append(commands, []string{
			"/tallywheel", "cyclic", "--style", style, "--interval", "5ms", "--count", fmt.Sprint(periods), "--json",
		})
	}
	text, err := json.Marshal(commands)
	if err == nil {
		err = os.WriteFile(plan, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	arm := []string{"GOOS=linux", "GOARCH=arm", "GOARM=7"}
	files := initramfs(t, map[string]string{
		"init": built(t, "./init", arm...), "tallywheel": built(t, "../../cmd/tallywheel", arm...), "plan": plan,
	})
	first := ""
	for range *boots {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		args := append(board[:len(board):len(board)], "-kernel", kernel, "-initrd", files,
			"-append", "console=ttyAMA0 quiet panic=-1 nokaslr")
		out, err := exec.CommandContext(ctx, qemu, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if first == "" {
			first = string(out)
		} else if string(out) != first {
			t.Errorf("a boot differs from the one before:\n%s\n%s", first, out)
		}
	}
	seen := 0
	for line := range strings.Lines(first) {
		var r struct {
			Style         string
			Count, Missed int
			Priority      int
			Latency       map[string]int64 `json:"latency_ns"`
			Cell          map[string]int64
			Lacking       []string
		}
		if json.Unmarshal([]byte(line), &r) != nil {
			continue
		}
		if seen++; r.Count != periods || r.Missed != 0 || r.Priority != 80 || len(r.Lacking) > 0 ||
			r.Latency["p50"] <= 0 {
			t.Errorf("on a machine that has nothing else to do: %s", line)
		}
		t.Logf("%s: %v %v", r.Style, r.Latency, r.Cell)
	}
	if seen != 2 {
		t.Errorf("%d results, want 2: %s", seen, first)
	}
}
