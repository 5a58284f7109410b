package guest

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/lab"
)

var bootsAtLeast = flag.Int("boots", 2, "how many boots TestBoard compares; make soak has ten")

// forBoards is our program for ARMv7.
func forBoards(t *testing.T) string {
	t.Helper()
	return built(t, "../../cmd/tallywheel", "GOOS=linux", "GOARCH=arm", "GOARM=7")
}

// labBoard runs `tallywheel lab board`, and returns its results.
func labBoard(t *testing.T, args ...string) *lab.Results {
	t.Helper()
	out := filepath.Join(t.TempDir(), "results")
	c := exec.CommandContext(t.Context(), testenv.Binary(t), append([]string{"lab", "board", "--out", out}, args...)...)
	c.Env = append(os.Environ(), "TMPDIR="+t.TempDir()) // the lock of measurements is there
	if said, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	} else if testing.Verbose() {
		t.Logf("%s", said)
	}
	r, err := lab.ReadJSON(filepath.Join(out, "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestBoard has our program measure on Debian's kernel for boards: a cell keeps 5 ms, boots are
// alike in all that they print, and the recorder has each line of it.
func TestBoard(t *testing.T) {
	kernel := kernels(t, "armmp")
	testenv.Program(t, "qemu-system-arm", install)
	r := labBoard(t, "--kernel", kernel, "--guest", forBoards(t), "--boots", strconv.Itoa(*bootsAtLeast),
		"--periods", "200")
	if r.Machine.Arch != "arm" || !strings.Contains(r.Machine.Kernel, "armmp") || len(r.Experiments) != 3 {
		t.Errorf("%d experiments, on %+v", len(r.Experiments), r.Machine)
	}
	seen := map[string]bool{}
	for _, e := range r.Experiments {
		for _, row := range e.Rows {
			seen[row.Contestant] = true
			language, _, _ := strings.Cut(row.Contestant, "/")
			if row.NotRun != "" && (language == "rust" || language == "c") { // no compiler for a board
				t.Logf("%s: %s", row.Contestant, row.NotRun)
				continue
			}
			for name, f := range row.Metrics {
				if f.N != *bootsAtLeast || row.Params["seed"] != "its own" && f.Lo != f.Hi {
					t.Errorf("%s, %s: %d boots, %v to %v", row.Contestant, name, f.N, f.Lo, f.Hi)
				}
			}
			late := row.Metrics[lab.LatencyP50.String()].Median
			if e.Name == "board-cyclic" && (row.Metrics["missed_releases"].Median != 0 || late <= 0 || row.Said != "") {
				t.Errorf("%s, on a machine that has nothing else to do: %+v", row.Contestant, row)
			}
		}
		for _, v := range e.Verdicts {
			if v.Verdict != lab.Reproduced && v.Reason != lab.TooFewRounds && !strings.Contains(v.Why, "not measured") {
				t.Errorf("%+v", v)
			}
		}
	}
	for _, name := range []string{
		"tallywheel/cell", "go/time.Ticker", "c/clock_nanosleep", "rust/clock_nanosleep", "go/goroutine", "c/futex",
		"go/init",
	} {
		if !seen[name] {
			text, _ := json.Marshal(r)
			t.Errorf("no %s in %s", name, text)
		}
	}
}
