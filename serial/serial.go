package serial

import (
	"errors"
	"fmt"
	"slices"
	"time"
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
	case !slices.Contains([]Parity{NoParity, EvenParity, OddParity, MarkParity, SpaceParity}, c.Parity):
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

// rateNote says which rate a driver made of the one that it was asked for; "" if they are near
// enough for a UART.
func rateNote(asked, made int) string {
	if off := made - asked; made != 0 && (off > asked/50 || -off > asked/50) {
		return fmt.Sprintf("asked for %d, the driver made %d", asked, made)
	}
	return ""
}

// Counters is what the driver has counted since it was loaded. On Windows it is since the port was
// opened, and only in how many looks of [Port.Read] and [Port.Counters] there was one: at least so
// many.
type Counters struct {
	Overrun       uint64 // characters lost in the UART
	BufferOverrun uint64 // bytes lost in the tty buffer, or in that of Windows' driver
	Framing       uint64
	Parity        uint64
	Break         uint64
}

// Info is what the system says of a port: on Linux sysfs, on Windows the registry, which knows the
// first three.
type Info struct {
	Path         string `json:"path"`                   // device node, /dev/ttyUSB0; COM3
	Identity     string `json:"identity"`               // stays the same when the port comes back under another name
	Driver       string `json:"driver"`                 // kernel driver; on Windows its name of the device
	VendorID     string `json:"vendor_id,omitempty"`    // USB: hexadecimal
	ProductID    string `json:"product_id,omitempty"`   // USB: hexadecimal
	Serial       string `json:"serial,omitempty"`       // USB serial number
	Manufacturer string `json:"manufacturer,omitempty"` // USB
	Product      string `json:"product,omitempty"`      // USB
	ByID         string `json:"by_id,omitempty"`        // stable link that udev made
}
