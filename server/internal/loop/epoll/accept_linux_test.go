package epoll

import (
	"net/netip"
	"testing"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/server/internal/loop"
	"github.com/tallywheel/tallywheel/server/internal/loop/looptest"
)

// TestAcceptErrors: what accept(2) says of an error decides whether the listener goes on.
func TestAcceptErrors(t *testing.T) {
	looptest.AcceptErrors(t, func(l *loop.Loop, fail func() error) (loop.Driver, error) {
		d, err := New(l)
		if err != nil {
			return nil, err
		}
		d.(*driver).take = func(fd int) (int, netip.AddrPort, error) {
			conn, peer, err := sys.Accept(fd)
			if err == nil {
				if err = fail(); err != nil {
					_ = sys.CloseFD(conn)
				}
			}
			return conn, peer, err
		}
		return d, nil
	})
}
