package recorder

import (
	"net"
	"syscall"
	"testing"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/sockets"
)

// A connection that dies without a word is noticed after 25 seconds, whether the device connects or
// is connected to.
func TestDeadConnectionsAreNoticed(t *testing.T) {
	listening := newListener("127.0.0.1:0", config.PeersFirst)
	defer listening.close(true)
	defer dial(t, listening.l.Addr().String()).Close()
	device, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	for name, o := range map[string]opener{
		"listen": listening,
		"dial":   &dialOpener{device.Addr().String(), sockets.AnswersWithin},
	} {
		d, err := o.open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		option := func(level, which int) int {
			n, err := syscall.GetsockoptInt(d.fd(), level, which)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		on := option(syscall.SOL_SOCKET, syscall.SO_KEEPALIVE)
		idle, interval := option(syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE),
			option(syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL)
		if count := option(syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT); on == 0 || idle+interval*count != 25 {
			t.Errorf("%s: keep-alive %d, after %d s %d times each %d s", name, on, idle, count, interval)
		}
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}
}
