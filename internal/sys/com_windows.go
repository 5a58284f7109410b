package sys

import (
	"os"

	"golang.org/x/sys/windows"
)

// Line is the form of a character and the flow control of a line.
type Line struct {
	Baud, DataBits            int
	TwoStops, RTSCTS, XonXoff bool  // XonXoff: of what is received
	Parity                    uint8 // 0 or one of the parities
}

// Parities of a DCB.
const (
	ParityEven  = windows.EVENPARITY
	ParityOdd   = windows.ODDPARITY
	ParityMark  = windows.MARKPARITY
	ParitySpace = windows.SPACEPARITY
)

// Bits of DCB.Flags, which winbase.h has as fields.
const (
	dcbBinary     = 1 << 0 // there is no other mode
	dcbParity     = 1 << 1 // errors of parity are reported
	dcbOutWaitCTS = 1 << 2 // fOutxCtsFlow
	dcbXoffRemote = 1 << 9 // fInX: the driver has the device pause
)

// What ClearCommError says has happened since it was asked before.
const (
	LineBufferOverrun = 0x0001 // CE_RXOVER
	LineOverrun       = 0x0002 // CE_OVERRUN
	LineParity        = 0x0004 // CE_RXPARITY
	LineFraming       = 0x0008 // CE_FRAME
	LineBreak         = 0x0010 // CE_BREAK
)

// OpenCOM opens a device for overlapped reads and writes; nobody else may open it meanwhile. The
// file waits in Go's poller, and its Close ends a read that waits.
func OpenCOM(path string) (*os.File, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	h, err := windows.CreateFile(name, windows.GENERIC_READ|windows.GENERIC_WRITE, 0, nil, windows.OPEN_EXISTING,
		windows.FILE_FLAG_OVERLAPPED, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(h), path), nil
}

// SetCOM sets the line, with DTR and RTS on, and returns the rate that the driver says it has. A
// read ends with as many bytes as it asks for, and a write with the last of them: neither has a
// timeout.
func SetCOM(f *os.File, l Line) (baud int, err error) {
	err = onHandle(f, func(h windows.Handle) error {
		dcb := windows.DCB{DCBlength: 28}
		if err := windows.GetCommState(h, &dcb); err != nil {
			return os.NewSyscallError("GetCommState", err)
		}
		dcb.Flags = dcbBinary | windows.DTR_CONTROL_ENABLE | windows.RTS_CONTROL_ENABLE
		dcb.BaudRate, dcb.ByteSize, dcb.Parity, dcb.StopBits = uint32(l.Baud), uint8(l.DataBits), l.Parity,
			windows.ONESTOPBIT
		if l.TwoStops {
			dcb.StopBits = windows.TWOSTOPBITS
		}
		if l.Parity != 0 {
			dcb.Flags |= dcbParity
		}
		if l.RTSCTS {
			// TOGGLE is all bits of the field
			dcb.Flags = dcb.Flags&^windows.RTS_CONTROL_TOGGLE | windows.RTS_CONTROL_HANDSHAKE | dcbOutWaitCTS
		}
		if l.XonXoff {
			dcb.Flags |= dcbXoffRemote
			dcb.XonChar, dcb.XoffChar = 0x11, 0x13
		}
		if err := windows.SetCommState(h, &dcb); err != nil {
			return os.NewSyscallError("SetCommState", err)
		}
		if err := windows.SetCommTimeouts(h, &windows.CommTimeouts{}); err != nil {
			return os.NewSyscallError("SetCommTimeouts", err)
		}
		err := windows.GetCommState(h, &dcb)
		baud = int(dcb.BaudRate)
		return os.NewSyscallError("GetCommState", err)
	})
	return baud, err
}

// COMState is how many bytes wait to be read, and what has happened since it was asked before.
func COMState(f *os.File) (waiting int, happened uint32, err error) {
	err = onHandle(f, func(h windows.Handle) error {
		var stat windows.ComStat
		err := windows.ClearCommError(h, &happened, &stat)
		waiting = int(stat.CBInQue)
		return os.NewSyscallError("ClearCommError", err)
	})
	return waiting, happened, err
}

// WriteCOM writes all of b, and holds a thread meanwhile. It is there because File.Write would wait
// for a File.Read that waits: files have one position, which both move.
func WriteCOM(f *os.File, b []byte) (n int, err error) {
	err = onHandle(f, func(h windows.Handle) error {
		event, err := windows.CreateEvent(nil, 1, 0, nil)
		if err != nil {
			return os.NewSyscallError("CreateEvent", err)
		}
		defer windows.CloseHandle(event)
		var done uint32
		o := windows.Overlapped{HEvent: event | 1} // the bit: Go's poller is not told
		if err = windows.WriteFile(h, b, &done, &o); err == windows.ERROR_IO_PENDING {
			err = windows.GetOverlappedResult(h, &o, &done, true)
		}
		n = int(done)
		return os.NewSyscallError("WriteFile", err)
	})
	return n, err
}

// SetCOMLines switches DTR and RTS.
func SetCOMLines(f *os.File, dtr, rts bool) error {
	return onHandle(f, func(h windows.Handle) error {
		for _, line := range []struct {
			on         bool
			set, clear uint32
		}{{dtr, windows.SETDTR, windows.CLRDTR}, {rts, windows.SETRTS, windows.CLRRTS}} {
			function := line.clear
			if line.on {
				function = line.set
			}
			if err := windows.EscapeCommFunction(h, function); err != nil {
				return os.NewSyscallError("EscapeCommFunction", err)
			}
		}
		return nil
	})
}

// onHandle calls f with the handle, which is not closed meanwhile. File.Fd would take the file out
// of the poller.
func onHandle(file *os.File, f func(windows.Handle) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = f(windows.Handle(fd)) }); err != nil {
		return os.ErrClosed // the only reason: the poller's own error does not say so to errors.Is
	}
	return failed
}
