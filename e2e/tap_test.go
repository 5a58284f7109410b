package e2e

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/crc16"
	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

func tapFrames(from, to uint64) (b []byte) {
	for n := from; n < to; n++ {
		f := make([]byte, tally128.Size)
		tally128.Encode(f, tally128.Header{Device: 7, Epoch: 1, Seq: n}, nil)
		b = append(b, f...)
	}
	return b
}

// tapPort is a virtual port, and the name of its source in a tap.
func tapPort(t *testing.T) (port *serialtest.Port, dir, source string) {
	t.Helper()
	dir = t.TempDir()
	port, err := serialtest.NewPort(filepath.Join(dir, "line"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = port.Close() })
	id := strings.Trim(regexp.MustCompile(`[^A-Za-z0-9._-]+`).ReplaceAllString(port.Link, "-"), "-")
	return port, dir, strings.TrimLeft(id[max(0, len(id)-64):], "-._")
}

func deliver(t *testing.T, port *serialtest.Port, b []byte) {
	t.Helper()
	if all, err := port.Deliver(b, time.Minute); err != nil || !all {
		t.Fatalf("%d bytes are not read: %v", len(b), err)
	}
}

func says(t *testing.T, p *testenv.Process, what string) {
	t.Helper()
	testenv.Until(t, time.Minute, "tap says "+what, func() bool { return strings.Contains(p.Out.String(), what) })
}

// ends interrupts a tap and returns its exit code.
func ends(t *testing.T, p *testenv.Process) int {
	t.Helper()
	if err := p.Cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = p.Cmd.Wait() // the exit code says it
	return p.Cmd.ProcessState.ExitCode()
}

func exported(t *testing.T, dir, source string, more ...string) string {
	t.Helper()
	args := []string{"log", "export", "--format", "raw", "--source", source, "--dir", filepath.Join(dir, "data")}
	return command(t, append(args, more...)...)
}

// A port that is unplugged is said to be gone, and opened again; what its numbers say is missing is
// said in its place, and the log has every byte that came.
func TestTapRidesOutAnUnplug(t *testing.T) {
	port, dir, source := tapPort(t)
	p := testenv.Start(t, testenv.Binary(t), "tap", port.Link, "--frame", "tally128", "--log",
		filepath.Join(dir, "data"))
	says(t, p, "open: ")
	first, second := tapFrames(0, 10), tapFrames(12, 15)
	deliver(t, port, first)
	says(t, p, " 7#9 ")
	if err := port.Unplug(); err != nil {
		t.Fatal(err)
	}
	says(t, p, "── the port is gone")
	says(t, p, "no such file or directory; waiting")
	if err := port.Plug(); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, time.Minute, "it is open again",
		func() bool { return strings.Count(p.Out.String(), "── open: ") == 2 })
	deliver(t, port, second)
	says(t, p, " 7#14 ")
	if code := ends(t, p); code != 1 {
		t.Errorf("exit code %d with 2 frames missing, want 1", code)
	}
	out := p.Out.String()
	for _, want := range []string{
		"── 2 missing: 10 to 11\n",
		"── 13 frames, 1664 bytes, 2 missing; the port was gone 1 time; something was lost or damaged\n",
		"every equation balances\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not said in\n%s", want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Error("color in a pipe")
	}
	if got := exported(t, dir, source); got != string(first)+string(second) {
		t.Errorf("%d bytes are in the log, %d came", len(got), len(first)+len(second))
	}
}

// At full speed, with nobody who reads the output, the log has every frame; and what is not shown
// is counted.
func TestTapWithASlowTerminalKeepsAll(t *testing.T) {
	port, dir, source := tapPort(t)
	const many = 40_000
	c := exec.Command(testenv.Binary(t), "tap", port.Link, "--frame", "tally128", "--log", filepath.Join(dir, "data"),
		"--count", strconv.Itoa(many))
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Process.Kill() //nolint:errcheck // it has ended
	head := make([]byte, len("── "))
	if _, err := io.ReadFull(out, head); err != nil { // it is open, or will be
		t.Fatal(err)
	}
	sent := tapFrames(0, many)
	deliver(t, port, sent)
	rest, err := io.ReadAll(out) // only now
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("nothing is lost: %v\n%.2000s", err, rest)
	}
	shown := bytes.Count(rest, []byte(" 7#"))
	var notShown int
	m := regexp.MustCompile(`── 40000 frames, 5120000 bytes, (\d+) not shown; nothing was lost or damaged`).FindSubmatch(rest)
	if m != nil {
		notShown, _ = strconv.Atoi(string(m[1]))
	}
	if m == nil || shown+notShown != many {
		t.Errorf("%d frames are shown, %d said not to be, of %d; the end is %q", shown, notShown, many,
			rest[max(0, len(rest)-700):])
	}
	if got := exported(t, dir, source); got != string(sent) {
		t.Errorf("%d bytes are in the log, %d came", len(got), len(sent))
	}
	t.Logf("%d frames, %d shown", many, shown)
}

// auto finds the framing of a bus, says why, and goes on in it; the log has every byte, those
// before in chunks.
func TestTapFindsModbus(t *testing.T) {
	port, dir, source := tapPort(t)
	p := testenv.Start(t, testenv.Binary(t), "tap", port.Link, "-b", "19200", "--log", filepath.Join(dir, "data"))
	says(t, p, "── undecided so far: raw chunks, split by silences of 10ms\n")
	says(t, p, "open: ")
	var sent []byte
	poll := func(n int) {
		q := []byte{1, 3, 0, byte(n), 0, 1}
		q = binary.LittleEndian.AppendUint16(q, crc16.Modbus(q))
		a := []byte{1, 3, 2, byte(n), byte(3 * n)}
		a = binary.LittleEndian.AppendUint16(a, crc16.Modbus(a))
		sent = append(append(sent, q...), a...)
		deliver(t, port, append(q, a...))
	}
	for n := range 3 {
		poll(n)
	}
	says(t, p, "── modbus: ")
	says(t, p, " of evidence; shown and recorded so from the next frame on\n")
	testenv.Until(t, time.Minute, "it is recorded as Modbus", func() bool {
		poll(9)
		return strings.Contains(p.Out.String(), "  01 03 02 09 1b ")
	})
	if code := ends(t, p); code != 0 {
		t.Errorf("exit code %d, want 0; output\n%s", code, p.Out)
	}
	if got := exported(t, dir, source); got != string(sent) {
		t.Errorf("the log has % x, sent was % x", got, sent)
	}
}

// The end of a pipe ends a tap without a word, and its log in order.
func TestTapEndsWithItsReader(t *testing.T) {
	port, dir, source := tapPort(t)
	c := exec.Command(testenv.Binary(t), "tap", port.Link, "--frame", "tally128", "--log", filepath.Join(dir, "data"))
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	talk := &testenv.Buffer{}
	c.Stderr = talk
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	if _, err := io.ReadFull(out, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := port.Write(tapFrames(0, 1)); err != nil { // the line that nobody reads ends it
		t.Fatal(err)
	}
	go func() { done <- c.Wait() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		_ = c.Process.Kill()
		t.Fatal("it does not end")
	}
	if code := c.ProcessState.ExitCode(); code != 0 || talk.String() != "" {
		t.Errorf("exit code %d, and it says %q", code, talk)
	}
	if got := exported(t, dir, source); got != string(tapFrames(0, 1)) {
		t.Errorf("%d bytes are in the log, 128 came", len(got))
	}
}

// Programs read what people read.
func TestTapInJSON(t *testing.T) {
	port, _, source := tapPort(t)
	p := testenv.Start(t, testenv.Binary(t), "tap", port.Link, "--frame", "tally128", "--format", "json", "--count",
		"3")
	says(t, p, "open: ")
	deliver(t, port, append(tapFrames(4, 6), tapFrames(8, 9)...))
	if err := p.Cmd.Wait(); p.Cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("two frames are missing, and it ends with %v", err)
	}
	var types []string
	for l := range strings.Lines(p.Out.String()) {
		var o struct {
			Type, Source string
			Number       *uint64
			From, To     uint64
			Data         []byte
			Sheet        *struct{ Balanced bool }
		}
		if err := json.Unmarshal([]byte(l), &o); err != nil {
			t.Fatalf("%v: %s", err, l)
		}
		switch o.Type {
		case "note":
			continue
		case "frame":
			if !bytes.Equal(o.Data, tapFrames(*o.Number, *o.Number+1)) || o.Source != source {
				t.Errorf("not the frame that came: %s", l)
			}
		case "missing":
			if o.From != 6 || o.To != 7 {
				t.Errorf("missing are 6 to 7: %s", l)
			}
		case "sheet":
			if !o.Sheet.Balanced {
				t.Errorf("the sheet: %s", l)
			}
		}
		types = append(types, o.Type)
	}
	if got := strings.Join(types, " "); got != "frame frame missing frame sheet" {
		t.Errorf("lines of %s", got)
	}
}

// The other side of socat is heard as any line is.
func TestTapHearsSocat(t *testing.T) {
	socat := testenv.Program(t, "socat", "apt install socat")
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	p := testenv.Start(t, testenv.Binary(t), "tap", "tcp-listen:"+addr, "--frame", "line")
	says(t, p, "not connected; waiting")
	for _, line := range []string{"12.5 kg", "12.6 kg"} {
		c := exec.Command(socat, "-u", "-", "TCP:"+addr)
		c.Stdin = strings.NewReader(line + "\r\n")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("socat: %v: %s", err, out)
		}
		says(t, p, "  "+line+"\n")
	}
	if code := ends(t, p); code != 0 {
		t.Errorf("exit code %d; output\n%s", code, p.Out)
	}
}
