package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/lab/board"
)

func TestMain(m *testing.M) {
	defer testenv.CleanUp()
	testenv.NoLeaks(m)
}

const install = "make deps-board"

// kernels is the folder of make deps-board.
func kernels(t *testing.T, file string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: a guest takes half a minute; leave out -short")
	}
	path, err := filepath.Abs("../../.deps-board/" + file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("SKIPPED: %v; %s", err, install)
	}
	return path
}

// initramfs writes an archive of files by their names in the guest.
func initramfs(t *testing.T, files map[string]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "initramfs")
	if err := board.WriteInitramfs(path, files); err != nil {
		t.Fatal(err)
	}
	return path
}

// built builds a package for the guest.
func built(t *testing.T, path string, env ...string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), filepath.Base(path))
	c := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", to, path)
	c.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", path, err, out)
	}
	return to
}

// machine is a guest that runs.
type machine struct {
	*board.Machine
	dir     string
	control net.Conn
	answers *bufio.Reader
}

// request and answer are those of init.
type request struct {
	Do   string   `json:"do"`
	Args []string `json:"args,omitempty"`
	N    int      `json:"n,omitempty"`
}

type answer struct {
	Out string `json:"out"`
	Err string `json:"err"`
	N   int    `json:"n"`
}

// bootWithin is how long a guest may take until init speaks; answerWithin each answer of it.
const (
	bootWithin   = 5 * time.Minute
	answerWithin = 2 * time.Minute
)

// boot starts a PC with a 16550 behind PCI, the socket "uart", and an FTDI adapter, the socket
// "usb", and waits for init.
func boot(t *testing.T) *machine {
	t.Helper()
	kernel := kernels(t, "vmlinuz")
	qemu := testenv.Program(t, "qemu-system-x86_64", install)
	files := map[string]string{"init": built(t, "./init"), "tallywheel": testenv.Binary(t)}
	modules, err := filepath.Glob(filepath.Join(filepath.Dir(kernel), "modules", "*"))
	if err != nil || len(modules) == 0 {
		t.Skipf("SKIPPED: no modules beside %s: %v; %s", kernel, err, install)
	}
	for _, m := range modules {
		files["modules/"+filepath.Base(m)] = m
	}
	dir, err := os.MkdirTemp("", "guest") // the names of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	g := &machine{dir: dir}
	socket := func(name string) string {
		return "socket,server=on,wait=off,id=" + name + ",path=" + filepath.Join(dir, name)
	}
	console := filepath.Join(dir, "console")
	g.Machine, err = board.Boot(context.Background(), qemu, "-accel", "tcg", "-cpu", "max", "-m", "768", "-smp", "1",
		"-display", "none", "-nodefaults", "-no-reboot",
		"-kernel", kernel, "-initrd", initramfs(t, files), "-append", "console=ttyS0 quiet panic=-1",
		"-chardev", "file,id=console,path="+console, "-serial", "chardev:console",
		"-chardev", socket("control"), "-serial", "chardev:control",
		"-chardev", socket("uart"), "-device", "pci-serial,chardev=uart",
		"-device", "qemu-xhci", "-chardev", socket("usb"),
		"-device", adapter+",id=adapter0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = g.Close()
		if t.Failed() {
			said, _ := os.ReadFile(console)
			t.Logf("the guest said, at the end:\n%s", said[max(0, len(said)-4000):])
		}
	})
	g.control = g.dial(t, "control")
	g.answers = bufio.NewReader(g.control)
	if a := g.hear(t, bootWithin); a.Out != "ready" {
		t.Fatalf("init says %+v", a)
	}
	return g
}

// adapter is the FTDI adapter, with a serial number; always-plugged: also while nobody is at its
// socket.
const adapter = "usb-serial,chardev=usb,always-plugged=on,serial=TW000001"

// dial connects to a socket of QEMU.
func (g *machine) dial(t *testing.T, name string) (c net.Conn) {
	t.Helper()
	testenv.Until(t, time.Minute, "QEMU has made the socket "+name, func() bool {
		var err error
		c, err = net.Dial("unix", filepath.Join(g.dir, name))
		return err == nil
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// hear is the next answer of init.
func (g *machine) hear(t *testing.T, within time.Duration) (a answer) {
	t.Helper()
	_ = g.control.SetReadDeadline(time.Now().Add(within))
	line, err := g.answers.ReadString('\n')
	if err == nil {
		err = json.Unmarshal([]byte(line), &a)
	}
	if err != nil {
		t.Fatalf("init says %q: %v", line, err)
	}
	return a
}

// ask has init do something.
func (g *machine) ask(t *testing.T, r request) answer {
	t.Helper()
	b, err := json.Marshal(r)
	if err == nil {
		_, err = g.control.Write(append(b, '\n'))
	}
	if err != nil {
		t.Fatal(err)
	}
	return g.hear(t, answerWithin)
}

// do is ask, of what must not fail.
func (g *machine) do(t *testing.T, what string, n int, args ...string) answer {
	t.Helper()
	a := g.ask(t, request{Do: what, Args: args, N: n})
	if a.Err != "" && what != "wait" {
		t.Fatalf("%s %q %d: %s", what, args, n, a.Err)
	}
	return a
}

// command has QEMU do something, and waits for its answer: why it was not done, or nothing.
func (g *machine) command(t *testing.T, name string, args map[string]any) string {
	t.Helper()
	var refused *board.Refused
	if _, err := g.Command(name, args); errors.As(err, &refused) {
		return refused.Why
	} else if err != nil {
		t.Fatal(err)
	}
	return ""
}

// plug puts the adapter in, and pull pulls it out, at once.
func (g *machine) plug(t *testing.T, id string) {
	t.Helper()
	args := map[string]any{"id": id}
	for i, part := range strings.Split(adapter, ",") {
		key, value, _ := strings.Cut(part, "=")
		switch {
		case i == 0:
			args["driver"] = part
		case value == "on":
			args[key] = true
		default:
			args[key] = value
		}
	}
	testenv.Until(t, time.Minute, "QEMU has let go of the adapter before", func() bool {
		refused := g.command(t, "device_add", args)
		if refused != "" && !strings.Contains(refused, "is in use") {
			t.Fatalf("%v: %s", args, refused)
		}
		return refused == ""
	})
}

func (g *machine) pull(t *testing.T, id string) {
	t.Helper()
	if refused := g.command(t, "device_del", map[string]any{"id": id}); refused != "" {
		t.Fatalf("%s: %s", id, refused)
	}
}
