package loop

import (
	"net"
	"net/netip"
	"os"
	"syscall"

	"github.com/tallywheel/tallywheel/internal/sys"
)

func threadID() int { return syscall.Gettid() }

// FDSocket is a socket of the kernel that does not block.
type FDSocket struct {
	fd   int
	peer netip.AddrPort // if who accepted it was told
}

// NewSocket makes a Socket of a descriptor. peer is the address at the other end, or not valid:
// then the kernel is asked for it.
func NewSocket(fd int, peer netip.AddrPort) *FDSocket { return &FDSocket{fd, peer} }

func waits(err error) error {
	if sys.Pending(err) {
		return ErrWait
	}
	return err
}

// Send implements Socket.
func (s *FDSocket) Send(b []byte) (int, error) {
	n, err := sys.Send(s.fd, b[:AtOnce(len(b))])
	return n, waits(err)
}

// SendMore implements Socket.
func (s *FDSocket) SendMore(b []byte) (int, error) {
	n, err := sys.SendMore(s.fd, b[:AtOnce(len(b))])
	return n, waits(err)
}

// SendAll implements Socket.
func (s *FDSocket) SendAll(bufs net.Buffers) (int, error) {
	if last := len(bufs) - 1; AtOnce(len(bufs[last])) < len(bufs[last]) {
		bufs = append(make(net.Buffers, 0, 4), bufs...) // the caller's stay as they are
		bufs[last] = bufs[last][:AtOnce(len(bufs[last]))]
	}
	n, err := sys.SendVector(s.fd, bufs)
	return n, waits(err)
}

// SendFile implements Socket.
func (s *FDSocket) SendFile(from *os.File, off int64, n int) (sent int, err error) {
	return s.sendFile(sys.SendFile, from, off, n)
}

// SendPrompt implements Socket.
func (s *FDSocket) SendPrompt(from *os.File, off int64, n int) (sent int, err error) {
	return s.sendFile(sys.SendFileKeepingP, from, off, n)
}

// sendFile sends by one of the calls.
func (s *FDSocket) sendFile(by sendFile, from *os.File, off int64, n int) (sent int, err error) {
	raw, err := from.SyscallConn()
	if err != nil {
		return 0, err
	}
	if e := raw.Control(func(fd uintptr) { sent, err = by(s.fd, int(fd), off, n) }); e != nil {
		return 0, e
	}
	return sent, waits(err)
}

type sendFile func(fd, from int, off int64, n int) (int, error)

// InCache implements Socket.
func (s *FDSocket) InCache(from *os.File, off int64, n int) (p sys.Presence) {
	if raw, err := from.SyscallConn(); err == nil {
		// closed: nobody knows
		_ = raw.Control(func(fd uintptr) { p = sys.InCache(int(fd), off, int64(n)) })
	}
	return p
}

// Receive implements Socket.
func (s *FDSocket) Receive(b []byte) (int, error) {
	n, err := sys.Receive(s.fd, b)
	return n, waits(err)
}

// Peek implements Socket.
func (s *FDSocket) Peek() error { return waits(sys.Peek(s.fd)) }

// Unsent implements Socket.
func (s *FDSocket) Unsent() int {
	n, err := sys.Unsent(s.fd)
	if err != nil { // the connection has failed: nobody takes anything any more
		return 0
	}
	return n
}

// EndSending implements Socket.
func (s *FDSocket) EndSending() error { return sys.EndSending(s.fd) }

// EndReceiving implements Socket.
func (s *FDSocket) EndReceiving() error { return sys.EndReceiving(s.fd) }

// Hang implements Socket.
func (s *FDSocket) Hang() { sys.Hang(s.fd) }

// Close implements Socket.
func (s *FDSocket) Close() error { return sys.CloseFD(s.fd) }

// Local implements Socket.
func (s *FDSocket) Local() (net.Addr, error) { return sys.LocalOf(s.fd) }

// Peer implements Socket.
func (s *FDSocket) Peer() (net.Addr, error) {
	if s.peer.IsValid() {
		return net.TCPAddrFromAddrPort(s.peer), nil
	}
	return sys.PeerOf(s.fd)
}

// FD implements Socket.
func (s *FDSocket) FD() int { return s.fd }

func duplicate(fd int) (*os.File, error) {
	n, err := sys.Dup(fd)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(n), "socket"), nil
}
