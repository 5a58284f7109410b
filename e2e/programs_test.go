package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

func readerOf(s string) io.Reader { return strings.NewReader(s) }

// writer is a Python program that knows the frame from its documentation alone: it writes 3000
// frames to a file, and, given a port, sends that file through pyserial.
const writer = `
import struct, sys, random
def crc(b):
    c = 0xFFFF
    for x in b:
        c ^= x
        for _ in range(8):
            c = (c >> 1) ^ 0xA001 if c & 1 else c >> 1
    return c
random.seed(4)
with open(sys.argv[1], "wb") as f:
    for n in range(3000):
        h = struct.pack("<BBBBIIQQ", 0xA5, 0x5A, 1, 0, 77, 1, n, 1000 * n) + random.randbytes(98)
        f.write(h + struct.pack("<H", crc(h)))
if len(sys.argv) > 2:
    import serial
    with serial.Serial(sys.argv[2], 115200) as s, open(sys.argv[1], "rb") as f:
        while b := f.read(1000):
            s.write(b)
        s.flush()
`

// TestPythonFramesComeBackByteForByte: pyserial writes into one end of a socat pair of ttys, the
// recorder reads the other.
func TestPythonFramesComeBackByteForByte(t *testing.T) {
	python := testenv.Python(t, "serial", "apt install python3-serial, or pip install pyserial")
	socat := testenv.Program(t, "socat", "apt install socat")
	dir := t.TempDir()
	ours, theirs, file := filepath.Join(dir, "ours"), filepath.Join(dir, "theirs"), filepath.Join(dir, "frames.bin")
	testenv.Start(t, socat, "PTY,raw,echo=0,link="+ours, "PTY,raw,echo=0,link="+theirs)
	testenv.Until(t, 10*time.Second, "socat makes the ports", func() bool {
		_, a := os.Stat(ours)
		_, b := os.Stat(theirs)
		return a == nil && b == nil
	})
	r := startRecorder(t, dir, serialSource("line", ours))
	testenv.Until(t, 10*time.Second, "the port is open", func() bool { return r.sheet(t).Ports[0].State == "open" })
	if out, err := exec.Command(python, "-c", writer, file, theirs).CombinedOutput(); err != nil {
		t.Fatalf("the Python writer: %v: %s", err, out)
	}
	testenv.Until(t, 20*time.Second, "all frames are durable",
		func() bool { return r.sheet(t).Ports[0].Frames.Durable == 3000 })
	s := r.stop(t).Ports[0]
	if s.Frames.Missing != 0 || s.Bytes.Resync != 0 {
		t.Errorf("a clean stream is booked as %+v, %+v", s.Bytes, s.Frames)
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := command(t, "log", "export", "--format", "raw", "--source", "line", "--dir", filepath.Join(dir, "data"))
	if !bytes.Equal([]byte(got), want) {
		t.Errorf("exported %d bytes, sent %d, and they differ", len(got), len(want))
	}
	lines := command(t, "log", "export", "--format", "ndjson", "--source", "line", "--dir", filepath.Join(dir, "data"))
	if n := strings.Count(lines, "\n"); n != 3000 || !strings.Contains(lines, `"device_time":2999000`) {
		t.Errorf("ndjson has %d lines, want 3000 with the device's times", n)
	}
}

// TestNetcatFeedsTCPAndUDP: the same file through socat into a TCP port that listens, one that
// dials, and UDP.
func TestSocatFeedsTCPAndUDP(t *testing.T) {
	python := testenv.Program(t, "python3", "install Python 3")
	socat := testenv.Program(t, "socat", "apt install socat")
	dir := t.TempDir()
	file := filepath.Join(dir, "frames.bin")
	if out, err := exec.Command(python, "-c", writer, file).CombinedOutput(); err != nil {
		t.Fatalf("the Python writer: %v: %s", err, out)
	}
	tcp, udp, dial := freePort(t), freePort(t), freePort(t)
	testenv.Start(t, socat, "-u", "FILE:"+file, fmt.Sprintf("TCP-LISTEN:%d,bind=127.0.0.1,reuseaddr", dial))
	r := startRecorder(t, dir, fmt.Sprintf(`  - {id: listens, tcp: {listen: "127.0.0.1:%d"}, frame: tally128}
  - {id: dials, tcp: {dial: "127.0.0.1:%d"}, frame: tally128}
  - {id: datagrams, udp: {listen: "127.0.0.1:%d"}, frame: tally128}
`, tcp, dial, udp))
	for _, to := range []string{fmt.Sprintf("TCP:127.0.0.1:%d", tcp), fmt.Sprintf("UDP:127.0.0.1:%d", udp)} {
		// Datagrams of 8 frames: socat sends one for each block that it reads.
		if out, err := exec.Command(socat, "-u", "-b", "1024", "FILE:"+file, to).CombinedOutput(); err != nil {
			t.Fatalf("socat to %s: %v: %s", to, err, out)
		}
	}
	testenv.Until(t, 20*time.Second, "all frames are durable", func() bool {
		for _, p := range r.sheet(t).Ports {
			if p.Frames.Durable != 3000 {
				return false
			}
		}
		return true
	})
	r.stop(t)
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"listens", "dials", "datagrams"} {
		got := command(t, "log", "export", "--format", "raw", "--source", id, "--dir", filepath.Join(dir, "data"))
		if !bytes.Equal([]byte(got), want) {
			t.Errorf("%s: exported %d bytes, sent %d, and they differ", id, len(got), len(want))
		}
	}
}
