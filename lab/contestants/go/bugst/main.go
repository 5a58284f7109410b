// Command bugst is the contestant go.bug.st/serial: a goroutine for each port that reads and takes frames. It checks no CRC.
package main

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"go.bug.st/serial"
)

func main() {
	var frames atomic.Uint64
	for _, path := range os.Args[1:] {
		p, err := serial.Open(path, &serial.Mode{BaudRate: 115200})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		go func() {
			buf, have := make([]byte, 64<<10), 0
			for {
				n, err := p.Read(buf[have : have+4096])
				if err != nil {
					return
				}
				have += n
				at := 0
				for have-at >= 128 {
					if buf[at] == 0xA5 && buf[at+1] == 0x5A {
						frames.Add(1)
						at += 128
					} else {
						at++
					}
				}
				have = copy(buf, buf[at:have])
			}
		}()
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	fmt.Println("frames", frames.Load())
}
