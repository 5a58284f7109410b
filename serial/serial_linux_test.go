package serial

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

// tree makes a fake sysfs and dev below dir: entries ending in a slash are folders, "a -> b" are
// links.
func tree(t *testing.T, dir string, entries map[string]string) {
	t.Helper()
	for name, content := range entries {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, ok := strings.CutPrefix(content, "-> "); ok {
			err = os.Symlink(filepath.Join(dir, to), path)
		} else {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func machine(t *testing.T, usbName string) System {
	dir := t.TempDir()
	usb := "sys/devices/pci0/usb1/1-2"
	tree(t, dir, map[string]string{
		usb + "/idVendor": "0403\n", usb + "/idProduct": "6001\n", usb + "/serial": "A50285BI\n",
		usb + "/manufacturer": "FTDI\n", usb + "/product": "USB-RS485 Cable\n",
		usb + "/1-2:1.0/bInterfaceNumber":         "00\n",
		usb + "/1-2:1.0/" + usbName + "/driver":   "-> sys/bus/usb-serial/drivers/ftdi_sio",
		"sys/bus/usb-serial/drivers/ftdi_sio/x":   "",
		"sys/class/tty/" + usbName + "/device":    "-> " + usb + "/1-2:1.0/" + usbName,
		"sys/devices/platform/serial8250/driver":  "-> sys/bus/platform/drivers/serial8250",
		"sys/bus/platform/drivers/serial8250/x":   "",
		"sys/class/tty/ttyS0/device":              "-> sys/devices/platform/serial8250",
		"sys/class/tty/ttyS0/type":                "4\n",
		"sys/class/tty/ttyS0/line":                "0\n",
		"sys/class/tty/ttyS1/device":              "-> sys/devices/platform/serial8250",
		"sys/class/tty/ttyS1/type":                "0\n",
		"sys/class/tty/tty1/uevent":               "",
		"dev/serial/by-id/usb-FTDI_A50285BI-if00": "-> dev/" + usbName,
		"dev/" + usbName:                          "",
	})
	return System{Sys: filepath.Join(dir, "sys"), Dev: filepath.Join(dir, "dev")}
}

func TestListReadsIdentityAndSkipsWhatIsNoPort(t *testing.T) {
	s := machine(t, "ttyUSB0")
	ports, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	if len(ports) != 2 {
		t.Fatalf("%d ports, want ttyS0 and ttyUSB0: %+v", len(ports), ports)
	}
	u := ports[1]
	if u.Identity != "usb:0403:6001:A50285BI:00" || u.Driver != "ftdi_sio" || u.Product != "USB-RS485 Cable" ||
		filepath.Base(u.ByID) != "usb-FTDI_A50285BI-if00" {
		t.Errorf("the adapter is described as %+v", u)
	}
	if ports[0].Identity != "sys:platform/serial8250:0" {
		t.Errorf("ttyS0 has the identity %q", ports[0].Identity)
	}
}

func TestResolveFindsThePortUnderItsNewName(t *testing.T) {
	before := machine(t, "ttyUSB0")
	identity := before.Identity(before.dev("ttyUSB0"))
	after := machine(t, "ttyUSB3")
	for _, name := range []string{before.dev("ttyUSB0"), identity} {
		path, err := after.Resolve(name, identity)
		if err != nil || filepath.Base(path) != "ttyUSB3" {
			t.Errorf("Resolve(%s) gives %s, %v; want ttyUSB3", name, path, err)
		}
	}
	if _, err := after.Resolve("usb:dead:beef:1:00", ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an absent identity gives %v, want ErrNotExist", err)
	}
}

func TestOpenVirtualPort(t *testing.T) {
	link := filepath.Join(t.TempDir(), "line")
	v, err := serialtest.NewPort(link)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	p, err := Open(link, Config{
		Baud: 250_000, Parity: EvenParity, StopBits: 2, LowLatency: true,
		RS485: &RS485{RTSOnSend: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.Baud != 250_000 {
		t.Errorf("asked for 250000 baud, got %d", p.Baud)
	}
	for _, option := range []string{"low_latency", "rs485"} {
		if got := p.Accepted[option]; got == "" || got == "ok" {
			t.Errorf("a pty accepts %s: %q", option, got)
		}
	}
	if _, err := p.Counters(); !errors.Is(err, ErrNoCounters) {
		t.Errorf("Counters of a pty gives %v, want ErrNoCounters", err)
	}
	if _, err := Open(link, Config{}); !errors.Is(err, ErrInUse) {
		t.Errorf("the second Open gives %v, want ErrInUse", err)
	}
	for _, path := range []string{"/dev/null", filepath.Join(t.TempDir(), "absent")} {
		if _, err := Open(path, Config{}); err == nil {
			t.Errorf("Open(%s) gives no error", path)
		}
	}
}

// Flow control takes nothing out of the data, whatever bytes that has.
func TestFlowControlLeavesTheData(t *testing.T) {
	var all []byte
	for b := range 256 {
		all = append(all, byte(b))
	}
	for _, flow := range []Flow{NoFlow, XonXoff, RTSCTS} {
		link := filepath.Join(t.TempDir(), "line")
		v, err := serialtest.NewPort(link)
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		p, err := Open(link, Config{Flow: flow})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if _, err := v.Write(all); err != nil {
			t.Fatal(err)
		}
		var got []byte
		testenv.Until(t, time.Minute, "the last byte is there", func() bool {
			b := make([]byte, 512)
			if n, err := syscall.Read(p.FD(), b); err == nil {
				got = append(got, b[:n]...)
			}
			return bytes.HasSuffix(got, all[255:])
		})
		if !bytes.Equal(got, all) {
			t.Errorf("flow %s: % X arrive of all bytes", flow, got)
		}
	}
}

// A device that is open is not opened again under another name, nor by another file, and its line
// stays as it was set.
func TestDeviceIsOpenOnce(t *testing.T) {
	dir := t.TempDir()
	link, other := filepath.Join(dir, "by-id"), filepath.Join(dir, "by-path")
	v, err := serialtest.NewPort(link)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	tty, err := filepath.EvalSymlinks(link)
	if err == nil {
		err = os.Symlink(tty, other)
	}
	if err != nil {
		t.Fatal(err)
	}
	a, pathA, errA := Device(link)
	if b, pathB, err := Device(other); errors.Join(errA, err) != nil || a != b || pathA != tty || pathB != tty {
		t.Errorf("two names of one device are %v at %s and %v at %s: %v, %v", a, pathA, b, pathB, errA, err)
	}
	p, err := Open(link, Config{Baud: 9600})
	if err != nil {
		t.Fatal(err)
	}
	// As for another file of the device, which has another lock.
	if err := syscall.Flock(p.FD(), syscall.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{link, other, tty} {
		_, err := Open(name, Config{Baud: 19200})
		if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), name) ||
			!strings.Contains(err.Error(), "open here as "+link+"; take one") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if line, err := sys.GetTermios(p.FD()); err != nil || line.Ispeed != 9600 {
		t.Errorf("the line has %d baud (%v), want 9600", line.Ispeed, err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if p, err = Open(other, Config{}); err != nil {
		t.Fatalf("once it is closed: %v", err)
	}
	p.Close()
}

// What another program has for itself is left to it, by the privileged, too.
func TestPortThatAnotherProgramHasForItself(t *testing.T) {
	link := filepath.Join(t.TempDir(), "line")
	v, err := serialtest.NewPort(link)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	theirs, err := sys.OpenTTY(link)
	if err != nil {
		t.Fatal(err)
	}
	defer sys.CloseFD(theirs)
	if err := sys.SetExclusive(theirs, true); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(link, Config{}); !errors.Is(err, ErrInUse) ||
		!strings.Contains(err.Error(), "by another program: `fuser -v /") {
		t.Errorf("it is opened, or %v", err)
	}
	if err := sys.SetExclusive(theirs, false); err != nil {
		t.Fatal(err)
	}
	p, err := Open(link, Config{})
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
}

func TestConfigs(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		bits int
		rate float64
	}{
		{Config{}, 10, 11520},
		{Config{Baud: 9600, Parity: EvenParity}, 11, 9600.0 / 11},
		{Config{Baud: 1200, DataBits: 7, StopBits: 2}, 10, 120},
	} {
		if c.cfg.CharBits() != c.bits || c.cfg.BytesPerSecond() != c.rate {
			t.Errorf("%+v: %d bits, %v B/s; want %d, %v", c.cfg, c.cfg.CharBits(), c.cfg.BytesPerSecond(), c.bits,
				c.rate)
		}
	}
	for want, cfg := range map[string]Config{
		"baud": {Baud: 1}, "data bits": {DataBits: 9}, "stop bits": {StopBits: 3}, "parity": {Parity: "both"},
		"flow": {Flow: "dtr"}, "FIFO": {FIFOTrigger: -1},
	} {
		if _, err := cfg.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v gives %v, want an error about %s", cfg, err, want)
		}
	}
}

// A port that may not be opened says who may, and how to become one of them.
func TestAccessNamesTheGroup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "port")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := access(path); !strings.HasPrefix(got, "only user ") {
		t.Errorf("a port of one user: %q", got)
	}
	if err := os.Chmod(path, 0o660); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 { // root may give it to any group
		const nobodyHasIt = 54321
		if err := os.Chown(path, -1, nobodyHasIt); err != nil {
			t.Fatal(err)
		}
		if got := access(path); !strings.Contains(got, "group 54321: run `sudo usermod -aG 54321 $USER`") {
			t.Errorf("a port of a group without a name: %q", got)
		}
	} else if got := access(path); !strings.Contains(got, "usermod -aG ") {
		t.Errorf("a port of a group: %q", got)
	}
	if got := access(path + "-absent"); !strings.Contains(got, "ls -l") {
		t.Errorf("a port that is gone: %q", got)
	}
}
