package guest

import (
	"encoding/json"
	"fmt"
	"net"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// inside is a recorder in the guest.
type inside struct {
	*machine
	pid int
	url string
}

const api = "127.0.0.1:7411"

// record starts a recorder of one source, whose serial part is given.
func (g *machine) record(t *testing.T, serial string) *inside {
	t.Helper()
	g.do(t, "write", 0, "/tmp/tallywheel.yaml", fmt.Sprintf(
		"log: {dir: /tmp/data, segment: 4MiB}\napi: {listen: %s}\nsources:\n  - {id: line, serial: {%s}, frame: tally128}\n",
		api, serial))
	r := &inside{machine: g, url: "http://" + api + "/api/v1/"}
	r.pid = g.do(t, "start", 0, "/tallywheel", "run", "-c", "/tmp/tallywheel.yaml", "--json").N
	r.until(t, "the port is open", func(p ledger.Port) bool { return p.State == ledger.StateOpen })
	return r
}

// port is the sheet's line now; false while the recorder does not answer.
func (r *inside) port(t *testing.T) (ledger.Port, bool) {
	t.Helper()
	a := r.ask(t, request{Do: "get", Args: []string{r.url + "sheet"}})
	if a.Err != "" {
		return ledger.Port{}, false
	}
	return portOf(t, a.Out), true
}

func portOf(t *testing.T, text string) ledger.Port {
	t.Helper()
	var s ledger.Sheet
	if err := json.Unmarshal([]byte(text), &s); err != nil || len(s.Ports) != 1 || !s.Balanced {
		t.Fatalf("a sheet: %v: %s", err, text)
	}
	return s.Ports[0]
}

func (r *inside) until(t *testing.T, what string, ok func(ledger.Port) bool) (p ledger.Port) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("the line, at last: %+v, kernel %s", p, counts(p))
		}
	}()
	testenv.Until(t, 3*time.Minute, what, func() bool {
		var there bool
		p, there = r.port(t)
		return there && ok(p)
	})
	return p
}

// stop ends the recorder, and returns its last sheet.
func (r *inside) stop(t *testing.T) ledger.Port {
	t.Helper()
	r.do(t, "signal", r.pid, fmt.Sprint(int(syscall.SIGTERM)))
	a := r.do(t, "wait", r.pid)
	if a.N != 0 {
		t.Fatalf("exit code %d: %s", a.N, a.Err)
	}
	return portOf(t, a.Out)
}

// device sends numbered frames into a socket of QEMU.
type device struct {
	conn net.Conn
	seq  uint64
}

func (d *device) send(t *testing.T, frames int) {
	t.Helper()
	b := make([]byte, frames*tally128.Size)
	for i := range frames {
		tally128.Encode(b[i*tally128.Size:], tally128.Header{Device: 7, Epoch: 1, Seq: d.seq}, []byte("20.5 °C"))
		d.seq++
	}
	_ = d.conn.SetWriteDeadline(time.Now().Add(time.Minute))
	if _, err := d.conn.Write(b); err != nil {
		t.Fatal(err)
	}
}

// onPCI is the line of a UART whose I/O address is none of a PC's own.
var onPCI = regexp.MustCompile(`(?m)^([0-9]+): uart:16550A port:0000([1-9A-F][0-9A-F]{3}) `)

// TestUART reads a 16550 by the driver 8250: all that comes, and beside it what the chip and the
// driver had no room for, to the byte.
func TestUART(t *testing.T) {
	g := boot(t)
	uarts := g.do(t, "read", 0, "/proc/tty/driver/serial").Out
	uart := onPCI.FindStringSubmatch(uarts)
	if uart == nil {
		t.Fatalf("no 16550A: %s", uarts)
	}
	name := "/dev/ttyS" + uart[1]
	d := &device{conn: g.dial(t, "uart")}
	r := g.record(t, "port: "+name+", low_latency: true, fifo_trigger: 14")
	d.send(t, 500)
	p := r.until(t, "all frames are stored", func(p ledger.Port) bool { return p.Frames.Stored == d.seq })
	if p.Bytes.Read != d.seq*tally128.Size || p.Frames.Missing != 0 || p.Kernel.Lost() != 0 {
		t.Errorf("of %d frames sent: %+v, kernel %s", d.seq, p, counts(p))
	}
	if got := g.do(t, "get", 0, r.url+"ports").Out; !strings.Contains(got, `{"low_latency":"ok","rx_trig_bytes":"ok"}`) {
		t.Errorf("what the driver made of the settings: %s", got)
	}
	read := p.Bytes.Read

	// the chip: each time one overrun of a full FIFO, which the driver hands on
	const overruns, fifo = 7, 16
	g.do(t, "overrun", overruns, uart[2])
	p = r.until(t, "what was in the FIFO is read", func(p ledger.Port) bool {
		return p.Bytes.Read >= read+overruns*fifo && p.Kernel != nil && p.Kernel.Overrun != nil && *p.Kernel.Overrun > 0
	})
	if *p.Kernel.Overrun != overruns {
		t.Errorf("%d overruns of the chip are %s in the sheet", overruns, counts(p))
	}

	// the driver: nobody reads, until its buffers are full, 1.3 MB
	const stalled = 12_000 // frames
	before, heard := p.Bytes.Read, g.counters(t, name).Rx
	g.do(t, "signal", r.pid, fmt.Sprint(int(syscall.SIGSTOP)))
	d.send(t, stalled)
	var c counters
	testenv.Until(t, 3*time.Minute, "the driver has heard all", func() bool {
		c = g.counters(t, name)
		return c.Rx-heard >= stalled*tally128.Size
	})
	g.do(t, "signal", r.pid, fmt.Sprint(int(syscall.SIGCONT)))
	r.until(t, "what the driver held is read, and its counters are", func(p ledger.Port) bool {
		return p.Kernel.BufferOverrun != nil && p.Bytes.Read+*p.Kernel.BufferOverrun == before+stalled*tally128.Size
	})
	d.send(t, 1) // not earlier: it would find the buffers full
	p = r.until(t, "the frame behind is stored", func(p ledger.Port) bool {
		return p.Frames.Missing+p.Frames.Stored == d.seq
	})
	if lost := *p.Kernel.BufferOverrun; lost == 0 || lost != c.BufferOverrun || p.Frames.Missing == 0 {
		t.Errorf("of %d bytes the driver had no room for %d, as it says: kernel %s, %d frames missing", stalled*tally128.Size,
			c.BufferOverrun, counts(p), p.Frames.Missing)
	}
	last := r.stop(t)
	if last.Frames.Stored+last.Frames.Missing != d.seq || *last.Kernel.Overrun != overruns {
		t.Errorf("the last sheet of %d frames: %+v, kernel %s", d.seq, last.Frames, counts(last))
	}
	t.Logf("%d frames: %d stored, %d missing; kernel %s", d.seq, last.Frames.Stored, last.Frames.Missing, counts(last))
}

// counters is what init reads of a port.
type counters struct {
	Rx            uint64 `json:"rx"`
	Overrun       uint64 `json:"overrun"`
	BufferOverrun uint64 `json:"buffer_overrun"`
}

func (g *machine) counters(t *testing.T, port string) (c counters) {
	t.Helper()
	if err := json.Unmarshal([]byte(g.do(t, "counters", 0, port).Out), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// counts shows what the driver has counted.
func counts(p ledger.Port) string {
	b, _ := json.Marshal(p.Kernel) // it has numbers alone
	return string(b)
}

// TestAdapterComesBack pulls out an FTDI adapter that is read, and puts it in again, twenty times;
// it comes back under another name each time, since somebody holds the old one.
func TestAdapterComesBack(t *testing.T) {
	g := boot(t)
	d := &device{conn: g.dial(t, "usb")}
	r := g.record(t, "port: /dev/ttyUSB0, rs485: {rts_on_send: true}")
	if got := g.do(t, "get", 0, r.url+"ports").Out; !strings.Contains(got, `"rs485":"ioctl TIOCSRS485: `) {
		t.Errorf("what an adapter without RS-485 made of it: %s", got)
	}
	const times, frames = 20, 20
	for n := range times + 1 {
		d.send(t, frames)
		r.until(t, fmt.Sprintf("all frames are stored that came before pull %d", n+1),
			func(p ledger.Port) bool { return p.Frames.Stored == d.seq })
		if n == times {
			break
		}
		g.do(t, "hold", 0, fmt.Sprintf("/dev/ttyUSB%d", n))
		g.pull(t, fmt.Sprintf("adapter%d", n))
		r.until(t, "it is gone", func(p ledger.Port) bool { return p.State == ledger.StateWaiting })
		g.plug(t, fmt.Sprintf("adapter%d", n+1))
		r.until(t, "it is back", func(p ledger.Port) bool { return p.State == ledger.StateOpen })
	}
	p := r.stop(t)
	if p.Frames.Stored != d.seq || p.Frames.Missing != 0 || len(p.Outages) != times {
		t.Errorf("of %d frames, %d times pulled out: %+v; %d outages: %+v", d.seq, times, p.Frames, len(p.Outages), p.Outages)
	}
	got := g.do(t, "read", 0, "/proc/tty/driver/usbserial").Out
	if !strings.Contains(got, fmt.Sprintf("\n%d: ", times)) {
		t.Errorf("it is not ttyUSB%d: %s", times, got)
	}
}
