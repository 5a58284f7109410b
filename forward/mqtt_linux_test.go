package forward

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
)

// The kernel tells the broker at once that an acknowledgement came, behind each of them: mosquitto
// holds the next one back until it is told.
func TestAcknowledgementsAreAcknowledged(t *testing.T) {
	port := freePort(t)
	mosquitto(t, port, "allow_anonymous true")
	d := &destination{cfg: config.Forward{
		Name: "m", To: "mqtt", URLs: []string{fmt.Sprintf("mqtt://127.0.0.1:%d", port)},
	}}
	to, err := dialMQTT(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	defer to.close()
	l := &lane{subject: "tallywheel/a"}
	for n := range 100 {
		m := &message{bare: true, body: []byte("a frame"), done: make(chan result, 1)}
		if err := to.send(l, m); err != nil {
			t.Fatal(err)
		}
		select {
		case r := <-m.done:
			if r.err != nil {
				t.Fatal(r.err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("message %d is not acknowledged", n)
		}
		quick := 0
		if err := to.(*mqttLink).socket.Control(func(fd uintptr) {
			quick, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_QUICKACK)
		}); err != nil {
			t.Fatal(err)
		}
		if err != nil || quick != 1 {
			t.Fatalf("behind message %d TCP_QUICKACK is %d (%v), want 1", n, quick, err)
		}
	}
}
