package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// A master and a device by other people, on a bus where another device is off: the books have each
// request that was not answered, and no other.
func TestUnansweredRequestsOfPymodbus(t *testing.T) {
	py := testenv.Python(t, "pymodbus", "pip install pymodbus")
	bus := exec.Command(py, "-B", "testdata/modbus_bus.py")
	var talk strings.Builder
	bus.Stderr = &talk
	pipe, err := bus.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bus.Process.Kill() }()
	said := bufio.NewReader(pipe)
	port, _ := said.ReadString('\n')
	if _, bad := strconv.Atoi(strings.TrimSpace(port)); bad != nil {
		if err := bus.Wait(); bus.ProcessState.ExitCode() != 3 {
			t.Fatalf("%v: %s%s", err, port, talk.String())
		}
		t.Skipf("SKIPPED: %s; pip install -U pymodbus", strings.TrimSpace(port))
	}
	r := startRecorder(t, t.TempDir(),
		fmt.Sprintf("  - {id: bus, tcp: {dial: 127.0.0.1:%s}, frame: modbus}\n", strings.TrimSpace(port)))
	out, err := io.ReadAll(said)
	if err := errors.Join(err, bus.Wait()); err != nil {
		t.Fatalf("%v: %s%s", err, out, talk.String())
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	var was struct{ Requests, Answered, Unanswered uint64 }
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &was); err != nil || was.Unanswered < 3 {
		t.Fatalf("%v: %+v: %s", err, was, out)
	}
	var f ledger.Frames
	testenv.Until(t, 20*time.Second, "all is stored", func() bool {
		f = r.sheet(t).Ports[0].Frames
		return f.Stored == was.Requests+was.Answered
	})
	if f.Requests != was.Requests || f.Answered != was.Answered || f.Unanswered != was.Unanswered {
		t.Errorf("%d asked, %d answered, %d unanswered; on the bus were %+v", f.Requests, f.Answered, f.Unanswered, was)
	}
	if s := r.stop(t); s.Verdict.Level != ledger.Bad || s.Verdict.LostWire.Frames != was.Unanswered {
		t.Errorf("%+v", s.Verdict)
	}
}
