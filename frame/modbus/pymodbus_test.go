package modbus_test

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// Frames that other people's program has built are found however they are merged and split: those
// of this package's other tests are by its own reading of the specification.
func TestTrafficOfPymodbus(t *testing.T) {
	py := testenv.Python(t, "pymodbus", "pip install pymodbus")
	if out, err := exec.Command(py, "-c", "from pymodbus.pdu import bit_message").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: pymodbus 3.10 or later is missing: %s; pip install -U pymodbus", out)
	}
	for seed := range uint64(3) {
		out, err := exec.Command(py, "-B", "testdata/traffic.py", "300", fmt.Sprint(seed)).Output()
		if err != nil {
			t.Fatal(err)
		}
		var sent [][]byte
		for _, line := range strings.Fields(string(out)) {
			b, err := hex.DecodeString(line)
			if err != nil {
				t.Fatal(err)
			}
			sent = append(sent, b)
		}
		if len(sent) != 600 {
			t.Fatalf("%d frames, want 600", len(sent))
		}
		for again := range uint64(20) {
			mergedAndSplit(t, fmt.Sprintf("seed %d, %d", seed, again), rand.New(rand.NewPCG(seed, again)), sent)
		}
	}
}
