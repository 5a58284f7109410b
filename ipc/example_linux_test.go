package ipc_test

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/tallywheel/tallywheel/ipc"
)

// The memory of a ring goes to the other process by a connection; here both ends are in one.
func Example() {
	ours, theirs, err := ipc.Pair(ipc.ConnConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ours.Close()
	cfg := ipc.RingConfig{Slot: 64}
	ring, err := ipc.Create(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ring.Close()
	done := make(chan struct{})
	go func() { // another process, which has been started with theirs
		defer close(done)
		if err := other(theirs, cfg); err != nil {
			fmt.Println(err)
		}
	}()

	if err := ours.Send(ipc.Message{Files: []ipc.File{{Name: "measurements", File: ring.File()}}}); err != nil {
		fmt.Println(err)
	}
	sender, err := ring.Sender()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, text := range []string{"21.5 °C", "21.6 °C"} {
		if err := sender.Send([]byte(text), -1); err != nil {
			fmt.Println(err)
		}
	}
	sender.Close()
	<-done
	// Output:
	// measurements: 21.5 °C
	// measurements: 21.6 °C
}

func other(socket *os.File, cfg ipc.RingConfig) error {
	conn, err := ipc.Inherit(socket, ipc.ConnConfig{})
	if err != nil {
		return err
	}
	defer conn.Close()
	m, err := conn.Receive()
	if err != nil {
		return err
	}
	ring, err := ipc.Open(m.Files[0].File, cfg)
	if err != nil {
		return err
	}
	defer ring.Close()
	receiver, err := ring.Receiver()
	if err != nil {
		return err
	}
	for buf := make([]byte, cfg.Slot); ; {
		n, err := receiver.Receive(buf, -1)
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		fmt.Printf("%s: %s\n", m.Files[0].Name, buf[:n])
	}
}
