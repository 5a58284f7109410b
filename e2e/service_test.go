package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// TestReloadBySignal adds a source to the file of a running recorder, then breaks the file: the one
// that runs stays.
func TestReloadBySignal(t *testing.T) {
	dir := t.TempDir()
	r := startRecorder(t, dir, serialSource("first", dir+"/absent"))
	file := filepath.Join(dir, "tallywheel.yaml")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	reload := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := r.Cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	reload(string(b) + serialSource("second", dir+"/absent-too"))
	testenv.Until(t, 10*time.Second, "the second source is there", func() bool { return len(r.sheet(t).Ports) == 2 })
	reload(string(b) + "surces: []\n")
	testenv.Until(t, 10*time.Second, "the mistake is reported", func() bool {
		return strings.Contains(r.Err.String(), `did you mean \"sources\"`)
	})
	if n := len(r.sheet(t).Ports); n != 2 {
		t.Errorf("%d sources after a bad reload, want 2", n)
	}
	r.stop(t)
}

// TestReloadWhileStarting: SIGHUP does not end a start, and is heard once that is done. The
// configuration comes through a FIFO, so that the start waits where the test wants it to.
func TestReloadWhileStarting(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "tallywheel.yaml")
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	text := fmt.Appendf(nil, "log: {dir: %s/data}\napi: {listen: \"off\"}\n", dir)
	if err := os.WriteFile(file+".next", text, 0o600); err != nil {
		t.Fatal(err)
	}
	p := testenv.Start(t, testenv.Binary(t), "run", "-c", file)
	f, err := os.OpenFile(file, os.O_WRONLY, 0) // returns when the program reads
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(file+".next", file), p.Cmd.Process.Signal(syscall.SIGHUP)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(text); err != nil {
		t.Fatalf("%v; stderr: %s", err, p.Err)
	}
	f.Close()
	testenv.Until(t, 20*time.Second, "the reload is heard",
		func() bool { return strings.Contains(p.Err.String(), "msg=reloaded") })
	if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.Cmd.Wait(); err != nil {
		t.Fatalf("%v; stderr: %s", err, p.Err)
	}
}

// TestHearsSIGHUPFirst: `run` hears of a reload before its packages are made ready, of which there
// are hundreds: a SIGHUP meanwhile would end it.
func TestHearsSIGHUPFirst(t *testing.T) {
	c := exec.Command(testenv.Binary(t), "version")
	c.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	begin := func(name string) int { return strings.Index(string(out), "init "+name+" ") }
	signals, hears, last := begin("os/signal"), begin("github.com/tallywheel/tallywheel/internal/early"), begin("main")
	if signals < 0 || hears < signals || last < hears {
		t.Fatalf("package early is not made ready behind os/signal:\n%s", out)
	}
	if n := strings.Count(string(out[signals:hears]), "\n"); n > 3 {
		t.Errorf("%d packages are made ready before SIGHUP is heard:\n%s", n, out[signals:hears])
	}
}

// TestTellsSystemd: sd_notify(3) says when it is ready, and that it stops.
func TestTellsSystemd(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "notify")
	sock, err := net.ListenPacket("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	r := startRecorder(t, dir, serialSource("first", dir+"/absent"))
	for i, want := range []string{"READY=1", "STOPPING=1"} {
		if i == 1 {
			r.stop(t)
		}
		if err := sock.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		n, _, err := sock.ReadFrom(b)
		if got := string(b[:n]); err != nil || got != want {
			t.Errorf("told %q, %v; want %q", got, err, want)
		}
	}
}

// TestFlippedBitIsFoundAndRepaired: a damaged log stops the recorder with a place and a remedy, and
// the remedy works.
func TestFlippedBitIsFoundAndRepaired(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	command(t, "demo", "--for", "1s", "--ports", "1", "--condition", "steady", "--listen", "off", "--dir", dir)
	segment := filepath.Join(data, fmt.Sprintf("%020d.seg", 1))
	at := flip(t, segment, 50_000, "\xa5\x5a\x01") // a frame begins, behind the header of its record
	place := fmt.Sprintf("00000000000000000001.seg at %d", at-32)
	bin := testenv.Binary(t)
	verify := testenv.Start(t, bin, "log", "verify", "--dir", data)
	if err := verify.Cmd.Wait(); err == nil || !strings.Contains(verify.Out.String(), place) {
		t.Errorf("verify: %v: %s; want the place", err, verify.Out)
	}
	config := filepath.Join(dir, "tallywheel.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "log: {dir: %s}\napi: {listen: \"off\"}\n", data),
		0o600); err != nil {
		t.Fatal(err)
	}
	run := testenv.Start(t, bin, "run", "-c", config)
	if err := run.Cmd.Wait(); err == nil || !strings.Contains(run.Err.String(), "`log repair` keeps what is whole") {
		t.Errorf("run: %v: %s; want a refusal that names the remedy", err, run.Err)
	}
	if out := command(t, "log", "repair", "--dir", data); !strings.Contains(out, "1 known to be lost") {
		t.Errorf("repair: %s; want one record given up", out)
	}
	r := startRecorder(t, dir, "")
	r.stop(t)
}

// TestRunEndsWithItsLog: a recorder whose folder is taken away can store nothing more. It ends by
// itself, with an exit code by which a supervisor acts, and says why.
func TestRunEndsWithItsLog(t *testing.T) {
	for name, take := range map[string]func(data string) error{
		"moved":   func(data string) error { return os.Rename(data, data+".moved") },
		"segment": func(data string) error { return os.Remove(filepath.Join(data, fmt.Sprintf("%020d.seg", 1))) },
	} {
		dir := t.TempDir()
		device, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer device.Close()
		r := startRecorder(t, dir, fmt.Sprintf("  - {id: a, tcp: {dial: %q}, frame: line}\n", device.Addr()))
		c, err := device.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("a line\n")); err != nil {
			t.Fatal(err)
		}
		testenv.Until(t, time.Minute, "the line is durable",
			func() bool { return r.sheet(t).Ports[0].Frames.Durable == 1 })
		if err := take(filepath.Join(dir, "data")); err != nil {
			t.Fatal(err)
		}
		late := time.AfterFunc(time.Minute, func() { _ = r.Cmd.Process.Kill() })
		err = r.Cmd.Wait()
		late.Stop()
		said := r.Err.String()
		if code := r.Cmd.ProcessState.ExitCode(); code != 1 ||
			!strings.Contains(said, "was removed or replaced: it is not the one that was opened") ||
			!strings.Contains(said, "start it again, as a supervisor does") {
			t.Errorf("%s: exit code %d, %v, want 1 and the cause; stderr: %s", name, code, err, said)
		}
	}
}
