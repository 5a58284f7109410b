package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// freePort returns a TCP and UDP port that was free a moment ago, for programs that cannot choose
// one themselves. It is none of those that the kernel gives to who asks for any (32768 and up,
// where nobody has changed that): tests of other packages ask all the time, and would be first.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		n := 10_000 + rand.IntN(20_000)
		addr := fmt.Sprintf("127.0.0.1:%d", n)
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		u, err := net.ListenPacket("udp", addr)
		l.Close()
		if err == nil {
			u.Close()
			return n
		}
	}
	t.Fatal("no free port")
	return 0
}
