package serial

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// Errors that callers act on.
var (
	// ErrInUse: another program, or another Port of this one, has the device.
	ErrInUse = errors.New("the port is in use")
	// ErrNoCounters: the driver does not count line errors.
	ErrNoCounters = errors.New("the driver has no line counters")
)

// Parity of a character.
type Parity string

// Parities.
const (
	NoParity    Parity = "none"
	EvenParity  Parity = "even"
	OddParity   Parity = "odd"
	MarkParity  Parity = "mark"
	SpaceParity Parity = "space"
)

// Flow control.
type Flow string

// Kinds of flow control.
const (
	NoFlow  Flow = "none"
	RTSCTS  Flow = "rtscts"
	XonXoff Flow = "xonxoff" // the kernel has the device pause; what that sends is data, also 0x11 and 0x13
)

// Config is how a line is set. The zero value is 115200 8N1 without flow control.
type Config struct {
	Baud        int    // bits a second; 0 means 115200
	DataBits    int    // 5 to 8; 0 means 8
	Parity      Parity // "" means none
	StopBits    int    // 1 or 2; 0 means 1
	Flow        Flow   // "" means none
	RS485       *RS485 // nil: leave the driver's mode as it is
	LowLatency  bool   // ask the driver to pass bytes on at once
	FIFOTrigger int    // bytes in the UART's FIFO that raise an interrupt; 0: leave it
}

// RS485 is the driver's control of the transmitter on a two-wire bus.
type RS485 struct {
	RTSOnSend   bool          // RTS is high while sending, else low
	DelayBefore time.Duration // between RTS and the first bit, ms steps
	DelayAfter  time.Duration // between the last bit and RTS, ms steps
	Receive     bool          // hear oneself
}

// Limits of the rate, in baud: no UART is outside.
const (
	MinBaud = 50
	MaxBaud = 20_000_000
)

// Check fills in defaults and reports what is wrong.
func (c Config) Check() (Config, error) {
	if c.Baud == 0 {
		c.Baud = 115200
	}
	if c.DataBits == 0 {
		c.DataBits = 8
	}
	if c.StopBits == 0 {
		c.StopBits = 1
	}
	if c.Parity == "" {
		c.Parity = NoParity
	}
	if c.Flow == "" {
		c.Flow = NoFlow
	}
	switch {
	case c.Baud < MinBaud || c.Baud > MaxBaud:
		return c, fmt.Errorf("baud %d: want %d to %d", c.Baud, MinBaud, MaxBaud)
	case c.DataBits < 5 || c.DataBits > 8:
		return c, fmt.Errorf("data bits %d: want 5 to 8", c.DataBits)
	case c.StopBits != 1 && c.StopBits != 2:
		return c, fmt.Errorf("stop bits %d: want 1 or 2", c.StopBits)
	case parities[c.Parity] == 0 && c.Parity != NoParity:
		return c, fmt.Errorf("parity %q: want none, even, odd, mark or space", c.Parity)
	case c.Flow != NoFlow && c.Flow != RTSCTS && c.Flow != XonXoff:
		return c, fmt.Errorf("flow control %q: want none, rtscts or xonxoff", c.Flow)
	case c.FIFOTrigger < 0 || c.FIFOTrigger > 4096:
		return c, fmt.Errorf("FIFO trigger %d: want 1 to 4096 bytes", c.FIFOTrigger)
	}
	return c, nil
}

// CharBits is the number of bits that a character takes on the line: start, data, parity and stop.
func (c Config) CharBits() int {
	c, _ = c.Check()
	n := 1 + c.DataBits + c.StopBits
	if c.Parity != NoParity {
		n++
	}
	return n
}

// BytesPerSecond is what the line carries at most.
func (c Config) BytesPerSecond() float64 {
	c, _ = c.Check()
	return float64(c.Baud) / float64(c.CharBits())
}

var parities = map[Parity]uint32{
	EvenParity: sys.ParityEven, OddParity: sys.ParityOdd, MarkParity: sys.ParityMark, SpaceParity: sys.ParitySpace,
}

// Port is an open serial port.
type Port struct {
	Path     string            // as opened, links resolved
	Baud     int               // the rate that the driver chose
	Accepted map[string]string // optional setting → "ok", or why the driver refused it

	device    sys.Device // while it is in opened; else zero
	exclusive bool       // the kernel refuses others

	fd int // bare: an os.File would put it into the runtime's poller, which would wake for every byte, too
}

// opened has the ports that are open in this program by their device, which may have several names,
// and several files.
var opened = struct {
	sync.Mutex
	names map[sys.Device]string // as given to Open
}{names: map[sys.Device]string{}}

// Open opens and sets the port at path. Bytes that the kernel holds already stay to be read.
//
// A device is open once: under whatever name it is asked for again, in this program or in another
// one that locks its ports, that is ErrInUse, and neither a byte nor a setting of the line is
// touched.
func Open(path string, cfg Config) (*Port, error) {
	cfg, err := cfg.Check()
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	real, err := filepath.EvalSymlinks(path)
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) { // what it had to look at on the way is of no interest
		return nil, &fs.PathError{Op: "open", Path: path, Err: pe.Err}
	} else if err != nil {
		return nil, err
	}
	fd, err := sys.OpenTTY(real)
	switch {
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%w; %s", err, access(real))
	case errors.Is(err, syscall.EBUSY):
		return nil, fmt.Errorf("open %s: %w by another program: `fuser -v %s` names it", path, ErrInUse, real)
	case err != nil:
		return nil, err
	}
	p := &Port{Path: real, fd: fd, Accepted: map[string]string{}}
	if err = p.take(path); err == nil {
		err = p.setUp(cfg)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), p.Close())
	}
	return p, nil
}

// Adopt is a port that another process has opened, at a path, and passed on: with its lock, its
// settings, and what it holds. An error leaves the descriptor open.
func Adopt(fd int, path string, accepted map[string]string) (*Port, error) {
	device, err := sys.DeviceOf(fd)
	if err != nil {
		return nil, fmt.Errorf("adopt %s: %w", path, err)
	}
	t, err := sys.GetTermios(fd)
	if err != nil {
		return nil, fmt.Errorf("adopt %s: not a serial port, or it is gone: %w", path, err)
	}
	opened.Lock()
	defer opened.Unlock()
	if device != (sys.Device{}) {
		opened.names[device] = path
	}
	return &Port{
		Path: path, Baud: int(t.Ispeed), Accepted: accepted, fd: fd, device: device, exclusive: !device.IsPTY() && sys.IsExclusive(fd),
	}, nil
}

// access says how to be let into a device.
func access(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return "see who may use it: ls -l " + path
	}
	group := strconv.Itoa(int(info.Sys().(*syscall.Stat_t).Gid))
	if g, err := user.LookupGroupId(group); err == nil {
		group = g.Name
	}
	if info.Mode()&0o060 != 0o060 || group == "root" {
		return fmt.Sprintf("only %s may use it; a rule of udev can give it to a group, as dialout", owner(info))
	}
	return fmt.Sprintf("it belongs to group %s: run `sudo usermod -aG %[1]s $USER`, and log in again", group)
}

func owner(info os.FileInfo) string {
	id := strconv.Itoa(int(info.Sys().(*syscall.Stat_t).Uid))
	if u, err := user.LookupId(id); err == nil {
		return "user " + u.Username
	}
	return "user " + id
}

// Device is the device that a port is now, and its path; name is a path, or an identity as [List]
// gives it. All names of one device give the same.
func Device(name string) (d sys.Device, path string, err error) {
	if path, err = Resolve(name, ""); err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err == nil {
		d, err = sys.DeviceAt(path)
	}
	if err == nil && d == (sys.Device{}) {
		err = fmt.Errorf("%s is no device", path)
	}
	return d, path, err
}

// take makes the device this port's, or says who has it. The lock is of the file, so another file
// of the same device is known by the number of the device here, and in other programs by what the
// kernel refuses.
func (p *Port) take(path string) error {
	device, err := sys.DeviceOf(p.fd)
	if err != nil {
		return err
	}
	opened.Lock()
	defer opened.Unlock()
	isDevice := device != (sys.Device{})
	if name, ok := opened.names[device]; ok && isDevice {
		return fmt.Errorf("%w: it is the device that is open here as %s; take one of the two out", ErrInUse, name)
	}
	others := fmt.Errorf("%w by another program: `fuser -v %s` names it", ErrInUse, p.Path)
	if held, err := sys.LockFD(p.fd); held {
		return others
	} else if err != nil {
		return err
	}
	if sys.IsExclusive(p.fd) { // the privileged are let in all the same
		return others
	}
	if !device.IsPTY() { // the mark would outlive a kill: a pty's other end keeps it
		p.exclusive = sys.SetExclusive(p.fd, true) == nil // an error: it is no terminal, which setUp says
	}
	if isDevice {
		opened.names[device], p.device = path, device
	}
	return nil
}

func (p *Port) setUp(cfg Config) error {
	t, err := sys.GetTermios(p.fd)
	if err != nil {
		return fmt.Errorf("not a serial port: %w", err)
	}
	sys.SetLine(t, sys.Line{
		Baud: cfg.Baud, DataBits: cfg.DataBits, TwoStops: cfg.StopBits == 2, Parity: parities[cfg.Parity],
		RTSCTS: cfg.Flow == RTSCTS, XonXoff: cfg.Flow == XonXoff,
	})
	if err := sys.SetTermios(p.fd, t); err != nil {
		return err
	}
	// A driver may take a rate near the one asked for, and says which.
	if t, err = sys.GetTermios(p.fd); err != nil {
		return err
	}
	p.Baud = int(t.Ispeed)
	if off := p.Baud - cfg.Baud; p.Baud != 0 && (off > cfg.Baud/50 || -off > cfg.Baud/50) {
		p.Accepted["baud"] = fmt.Sprintf("asked for %d, the driver made %d", cfg.Baud, p.Baud)
	}
	p.options(cfg)
	return nil
}

// options asks for what a driver may refuse.
func (p *Port) options(cfg Config) {
	note := func(name string, err error) {
		if p.Accepted[name] = "ok"; err != nil {
			p.Accepted[name] = err.Error()
		}
	}
	name := filepath.Base(p.Path)
	if cfg.LowLatency {
		note("low_latency", sys.LowLatency(p.fd))
		timer := "/sys/bus/usb-serial/devices/" + name + "/latency_timer" // FTDI: ms that a byte waits in the adapter
		if _, err := os.Stat(timer); err == nil {
			note("latency_timer", os.WriteFile(timer, []byte("1"), 0))
		}
	}
	if cfg.FIFOTrigger > 0 {
		note("rx_trig_bytes", os.WriteFile("/sys/class/tty/"+name+"/rx_trig_bytes", fmt.Appendf(nil, "%d", cfg.FIFOTrigger), 0))
	}
	if r := cfg.RS485; r != nil {
		s := sys.RS485{
			Flags:              sys.RS485Enabled,
			DelayRTSBeforeSend: uint32(r.DelayBefore.Milliseconds()), DelayRTSAfterSend: uint32(r.DelayAfter.Milliseconds()),
		}
		if r.RTSOnSend {
			s.Flags |= sys.RS485RTSOnSend
		} else {
			s.Flags |= sys.RS485RTSAfter
		}
		if r.Receive {
			s.Flags |= sys.RS485RxDuringTx
		}
		note("rs485", sys.SetRS485(p.fd, s))
	}
}

// FD is the descriptor, which does not block. It is the port's: do not close it.
func (p *Port) FD() int { return p.fd }

// Counters is what the driver has counted since it was loaded.
type Counters struct {
	Overrun       uint64 // characters lost in the UART
	BufferOverrun uint64 // bytes lost in the tty buffer
	Framing       uint64
	Parity        uint64
	Break         uint64
}

// Counters reads the driver's line counters; ErrNoCounters if it has none.
func (p *Port) Counters() (Counters, error) {
	c, err := sys.Counters(p.fd)
	if errors.Is(err, syscall.ENOTTY) || errors.Is(err, syscall.EINVAL) {
		return Counters{}, ErrNoCounters
	}
	return Counters{
		Overrun: uint64(uint32(c.Overrun)), BufferOverrun: uint64(uint32(c.BufOverrun)),
		Framing: uint64(uint32(c.Frame)), Parity: uint64(uint32(c.Parity)), Break: uint64(uint32(c.Brk)),
	}, err
}

// SetLines switches DTR and RTS.
func (p *Port) SetLines(dtr, rts bool) error {
	err := sys.SetModemLines(p.fd, sys.TIOCM_DTR, dtr)
	return errors.Join(err, sys.SetModemLines(p.fd, sys.TIOCM_RTS, rts))
}

// Close closes the port. Nobody may be reading it.
func (p *Port) Close() error {
	fd := p.fd
	p.fd = -1
	if p.exclusive {
		_ = sys.SetExclusive(fd, false) // an error: it is gone
	}
	if p.device != (sys.Device{}) {
		opened.Lock()
		delete(opened.names, p.device)
		opened.Unlock()
	}
	sys.UnlockFD(fd) // another process may have the descriptor, too, and give it back a little later
	return sys.CloseFD(fd)
}
