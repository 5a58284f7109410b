// Command hello prints a line: for how long a program takes to begin. Package net has it linked
// with the C library where it is built with cgo.
package main

import (
	_ "net"
	"os"
)

func main() { _, _ = os.Stdout.WriteString("hello\n") }
