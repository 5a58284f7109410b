package e2e

import (
	"net"
	"testing"
)

// freePort returns a TCP and UDP port that was free a moment ago, for programs that cannot choose
// one themselves.
func freePort(t *testing.T) int {
	t.Helper()
	for range 20 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		n := l.Addr().(*net.TCPAddr).Port
		u, err := net.ListenPacket("udp", l.Addr().String())
		l.Close()
		if err == nil {
			u.Close()
			return n
		}
	}
	t.Fatal("no free port")
	return 0
}
