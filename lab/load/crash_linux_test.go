package load

import (
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"
)

// TestNobodyAnswers: while a connect is left unanswered, as Linux leaves it where a listener's
// queue is full, a device goes on: nobody takes what it says.
func TestNobodyAnswers(t *testing.T) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
	c, err := net.Dial("tcp", addr) // has the one place
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l := &tcpLine{addr: addr}
	began := time.Now()
	for range 20 {
		if taken, err := l.say(make([]byte, RecordBytes)); err != nil || taken {
			t.Fatalf("taken %v, %v", taken, err)
		}
	}
	if l.dialing == nil {
		t.Error("the connect was answered")
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
	t.Logf("20 records took %v", time.Since(began))
}
