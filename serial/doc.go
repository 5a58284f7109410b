// Package serial opens, names and watches serial ports on Linux and Windows. On Linux it reads
// nothing itself: a [Port] is a descriptor, made for package reader. On Windows a Port is read by
// its Read, which a Close ends.
//
// # Concepts
//
// A port has a path (/dev/ttyUSB0), which changes when an adapter is plugged in again, and an
// identity, which does not: the USB serial number where the device has one, else the place on the
// bus. [List] reads both from sysfs and never opens a port: opening one can reset a board or
// reconfigure a console. [Resolve] turns either into the path of today.
//
// On Linux [Open] sets the line with struct termios2, so any rate that the driver can make is
// possible, takes an advisory lock so that two programs do not share a port by mistake, and reports
// what the driver accepted of the optional settings.
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
//
// # Windows
//
// A port is COM3, and opens by overlapped calls, so that Read has deadlines and holds no thread.
// List has the registry's names and no identities, and there is neither Resolve nor System.
// Settings that Windows leaves to the driver's properties are errors: [Config].RS485, LowLatency,
// FIFOTrigger. Counters counts in how many looks there was an error, for Windows says no more.
//
// All of it was run under wine 8, with a pty for a port, and on no Windows: how a driver of a UART
// or of a USB adapter behaves, what it says of errors on the line, and that a port opens once, was
// not seen. The readers of package reader, and the recorder, need Linux.
package serial
