// Package serial opens, names and watches serial ports on Linux. It reads nothing itself: a [Port]
// is a descriptor, made for package reader.
//
// # Concepts
//
// A port has a path (/dev/ttyUSB0), which changes when an adapter is plugged in again, and an
// identity, which does not: the USB serial number where the device has one, else the place on the
// bus. [List] reads both from sysfs and never opens a port: opening one can reset a board or
// reconfigure a console. [Resolve] turns either into the path of today.
//
// [Open] sets the line with struct termios2, so any rate that the driver can make is possible,
// takes an advisory lock so that two programs do not share a port by mistake, and reports what the
// driver accepted of the optional settings.
//
// # Errors on the line
//
// Overruns, framing and parity errors and breaks are counted by the driver ([Port.Counters]); a pty
// has no such counts, nor have some USB adapters: [ErrNoCounters]. The bytes themselves are judged
// by the framing's own check.
//
// # Arithmetic
//
// A line carries baud ÷ (1 + data + parity + stop) bytes a second ([Config.BytesPerSecond]): 11,520
// at 115200 8N1, never more. A UART of F bytes FIFO that interrupts at T bytes overruns when it is
// not served within (F − T) × bits ÷ baud seconds.
package serial
