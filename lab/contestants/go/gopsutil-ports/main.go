//go:build fact

// Command gopsutil-ports builds only if gopsutil has the function that the article on ports names.
package main

import (
	"github.com/shirou/gopsutil/v4/host"
	"github.com/tallywheel/tallywheel/lab/contestant"
)

func main() {
	contestant.Main(func(t *contestant.Turn) error {
		ports, err := host.SerialPorts()
		return t.Answer(err == nil, "gopsutil lists %d ports, %v", len(ports), err)
	})
}
