package sockets

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// keepAlive finds a peer that is gone without a word after 25 seconds, whoever has connected.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}

// Listen waits for connections. An urgent byte of theirs is one of the stream, and sys.Seal makes
// the listener take nothing more.
func Listen(ctx context.Context, addr string) (*net.TCPListener, error) {
	c := &net.ListenConfig{KeepAliveConfig: keepAlive, Control: inlineUrgent}
	c.SetMultipathTCP(false) // or the kernel would not let us seal it
	l, err := c.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

// inlineUrgent is the Control of sockets: a byte that is sent as urgent is one of the stream.
func inlineUrgent(_, _ string, c syscall.RawConn) error {
	var err error
	return errors.Join(c.Control(func(fd uintptr) { err = sys.InlineUrgent(int(fd)) }), err)
}

// DatagramBuffer is the receive buffer asked of the kernel, in bytes: half a second of a fast
// source.
const DatagramBuffer = 4 << 20

// ListenDatagrams opens a UDP socket. name is where it listens.
func ListenDatagrams(addr string) (fd int, name string, err error) {
	at, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return -1, "", err
	}
	conn, err := net.ListenUDP("udp", at)
	if err != nil {
		return -1, "", err
	}
	defer conn.Close()
	_ = conn.SetReadBuffer(DatagramBuffer) // the kernel gives what its limit allows
	fd, err = sys.SocketOf(conn)
	return fd, conn.LocalAddr().String(), err
}

// Waiting is what the kernel holds for a descriptor, in bytes: of datagrams, those of the next one.
func Waiting(fd int) uint64 {
	n, err := sys.Waiting(fd)
	if err != nil { // the device is gone, and what it held with it
		return 0
	}
	return uint64(n)
}

// DiscardLine takes what the kernel holds of a serial line now, and returns how many bytes that
// was. Its descriptor does not block. A pty that somebody else has open keeps what nobody takes for
// whoever opens it next.
func DiscardLine(fd int) (n uint64) {
	b := make([]byte, 4<<10)
	for left := Waiting(fd); n < left; {
		got, err := syscall.Read(fd, b[:min(left-n, uint64(len(b)))])
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || got <= 0 { // somebody else has taken it, or it is gone with the device
			break
		}
		n += uint64(got)
	}
	return n
}

// MaxDatagram is more than a datagram can have, in bytes.
const MaxDatagram = 64 << 10

// Discard takes the datagrams that wait, one by one, for the kernel tells the length of the next
// one only. It returns how many bytes they had.
func Discard(fd int) (n uint64) {
	b := make([]byte, MaxDatagram)
	for {
		got, err := sys.Receive(fd, b)
		if err != nil {
			return n
		}
		n += uint64(got)
	}
}

// Idleness is how long to wait before a device is dialled again whose connections end at once and
// bring nothing, as those of a gateway do that another client has: without it each end is a new
// beginning, some thousand times a second.
type Idleness time.Duration

const (
	atOnce       = time.Second // a connection that ends sooner has ended at once
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
)

// Next is how long to wait behind a connection that lasted so long, and brought so many bytes.
func (i *Idleness) Next(lasted time.Duration, bytes uint64) time.Duration {
	if lasted >= atOnce || bytes > 0 {
		*i = 0
	} else {
		*i = max(Idleness(firstPause), min(2**i, Idleness(longestPause)))
	}
	return time.Duration(*i)
}
