package guest

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/board"
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
				if name != "stddev_us" && f.N != *bootsAtLeast || row.Params["seed"] != "its own" && f.Lo != f.Hi {
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

// TestBoardAtASerialLine: a guest with a shell on its console is a board at the end of a serial
// line, in time of the machine's clock. Our program measures on it all the same.
func TestBoardAtASerialLine(t *testing.T) {
	kernel := kernels(t, "armmp")
	qemu := testenv.Program(t, "qemu-system-arm", install)
	init := built(t, "./init", "GOOS=linux", "GOARCH=arm", "GOARM=7")
	there := map[string]string{"init": init, "tallywheel": forBoards(t)}
	if _, err := exec.LookPath(compiler); err == nil { // as docs/guide/board.md says
		to := filepath.Join(t.TempDir(), "c-cyclic")
		c := exec.Command(compiler, "-O2", "-static", "-o", to, "../../lab/contestants/c/cyclic.c", "-lm")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		there["c-cyclic"] = to
	}
	files := initramfs(t, there)
	args := append([]string{"-M", "virt"}, board.Emulated(kernel, files, "-- shell")...)
	m, err := board.Boot(t.Context(), qemu, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	terminal, err := m.Terminal("console")
	if err != nil {
		t.Fatal(err)
	}
	line, err := os.OpenFile(terminal, os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err == nil {
		defer line.Close()
		err = line.SetReadDeadline(time.Now().Add(bootWithin))
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Command("cont", nil); err != nil {
		t.Fatal(err)
	}
	for said := ""; !strings.HasSuffix(said, "# "); { // its prompt
		var b [256]byte
		n, err := line.Read(b[:])
		if said += string(b[:n]); err != nil {
			t.Fatalf("%v: %q", err, said)
		}
	}
	r := labBoard(t, "--target", "serial:"+terminal, "--guest", "/tallywheel", "--boots", "2", "--periods", "40")
	fromTarget(t, r, "armmp", there["c-cyclic"] != "")
}

// TestBoardOverSSH: what ssh carries out is read by the recorder, too. Here ssh is a script that
// has this machine be the board.
func TestBoardOverSSH(t *testing.T) {
	folder := t.TempDir()
	script := "#!/bin/sh\n[ \"$1 $2 $3\" = '-o BatchMode=yes root@board' ] && exec sh -c \"$4\"\n"
	if err := os.WriteFile(filepath.Join(folder, "ssh"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	r := labBoard(t, "--target", "ssh:root@board", "--guest", testenv.Binary(t), "--boots", "2", "--periods", "40")
	fromTarget(t, r, "", false)
}

// compiler is of C for boards.
const compiler = "arm-linux-gnueabihf-gcc"

// fromTarget holds to what a board that is there has measured in two rounds, with a program in C or
// without.
func fromTarget(t *testing.T, r *lab.Results, kernel string, withC bool) {
	t.Helper()
	if !strings.Contains(r.Machine.Kernel, kernel) || len(r.Experiments) != 2 {
		t.Fatalf("%d experiments on %+v", len(r.Experiments), r.Machine)
	}
	e := r.Experiments[0]
	row := e.Find("tallywheel/cell", nil)
	if row == nil || row.Metrics["latency_us_max"].N != 2 || row.Metrics["latency_us_max"].Median <= 0 {
		t.Errorf("the cell: %+v", e.Rows)
	}
	for _, row := range e.Rows {
		if row.Contestant != "c/clock_nanosleep" {
			continue
		}
		if withC && row.Metrics["latency_us_max"].N != 2 || !withC && !strings.Contains(row.NotRun, "c-cyclic") {
			t.Errorf("the program in C: %+v", row)
		}
	}
	if v := e.Verdicts[1]; v.Verdict != lab.Reproduced || !strings.HasPrefix(v.Here, "2 of 2") {
		t.Errorf("%+v", v)
	}
}
