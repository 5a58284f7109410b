//go:build fact

// Command xsys-setup builds only if golang.org/x/sys/unix has what the article on files calls.
package main

import (
	"github.com/tallywheel/tallywheel/lab/contestant"
	"golang.org/x/sys/unix"
)

func main() {
	contestant.Main(func(t *contestant.Turn) error {
		_, err := unix.IoUringSetup(8, &unix.IoUringParams{})
		return t.Answer(err == nil, "unix.IoUringSetup: %v", err)
	})
}
