package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/uring"
)

// TestUART: a UART's DMA is shown with its share of what came; where the machine has channels and
// the port has none, it says what to do; and other ports are not asked.
func TestUART(t *testing.T) {
	k := fake(t, map[string]string{"/sys/class/tty/ttyUSB0/device/latency_timer": "1"})
	k.Ask.Ports = func() ([]string, error) { return []string{"ttyUSB0", "ttyS1"}, nil }
	put(t, k, "/sys/class/tty/ttyS1/uartclk", "1843200")
	put(t, k, "/sys/class/tty/ttyS1/xmit_fifo_size", "16")
	const name = "ttyS1, receive DMA"
	if f := find(t, k.Examine(), name); f.State != Good || !strings.Contains(f.Found, "no DMA engine") ||
		!strings.Contains(f.Why, "FIFO of 16 bytes") {
		t.Errorf("without an engine: %+v", f)
	}
	put(t, k, "/sys/class/dma/dma0chan3/bytes_transferred", "300")
	if f := find(t, k.Examine(), name); f.State != Poor || !strings.Contains(f.How, "dma-names") {
		t.Errorf("without a channel: %+v", f)
	}
	device := k.path("/sys/class/tty/ttyS1/device")
	if err := os.MkdirAll(device, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../../dma/dma0chan3", filepath.Join(device, "dma:rx")); err != nil {
		t.Fatal(err)
	}
	if f := find(t, k.Examine(), name); f.State != Good || f.Found != "dma0chan3, 300 bytes since it is used" {
		t.Errorf("by DMA: %+v", f)
	}
	put(t, k, "/proc/tty/driver/serial", "serinfo:1.0 driver revision:\n0: uart:unknown port:000003F8 irq:4\n"+
		"1: uart:16550A port:000002F8 irq:3 tx:9 rx:400 RTS|DTR")
	if f := find(t, k.Examine(), name); !strings.HasSuffix(f.Found, "75 % of 400 received") {
		t.Errorf("its share: %+v", f)
	}
	for _, f := range k.Examine() {
		if strings.HasPrefix(f.Name, "ttyUSB0, receive") {
			t.Errorf("an adapter is taken for a UART: %+v", f)
		}
	}
}

// TestAgeOfTheKernel: what a kernel is too old for is named with its version, and the plan has a
// way there and a way back; what is forbidden is not a question of age.
func TestAgeOfTheKernel(t *testing.T) {
	lacks := func(since string) error { return &uring.FeatureError{Since: since, Err: uring.ErrNotSupported} }
	k := fake(t, map[string]string{"/proc/sys/kernel/osrelease": "5.10.0-99-amd64"})
	k.Ask.Rings = func() (map[string]error, []string) {
		return map[string]error{
			"multishot receive": lacks("6.0"), "minimum wait": lacks("6.12"), "registered ring": lacks("5.18"),
			"submission polling": &uring.FeatureError{Err: uring.ErrForbidden, Why: "seccomp"}, "io_uring": nil,
		}, []string{"io_uring", "multishot receive", "minimum wait", "registered ring", "submission polling"}
	}
	f := find(t, k.Examine(), "age")
	if f.State != Poor || f.Wanted != "Linux 6.12 or later" ||
		!strings.HasSuffix(f.Found, ": multishot receive (6.0), minimum wait (6.12), registered ring (5.18)") {
		t.Errorf("%+v", f)
	}
	for _, part := range []string{"install", "grub-reboot", "go back", "5.10.0-99-amd64"} {
		if !strings.Contains(f.How, part) {
			t.Errorf("the plan does not say %s: %s", part, f.How)
		}
	}
	k.Ask.Rings = func() (map[string]error, []string) {
		return map[string]error{"io_uring": nil}, []string{"io_uring"}
	}
	if f := find(t, k.Examine(), "age"); f.State != Good || f.How != "" {
		t.Errorf("of a new kernel: %+v", f)
	}
}
