//go:build race

package testenv

import "os"

// Race says that the race detector is on.
const Race = true

// A process with the race detector sleeps for a second when it ends. Those that a test starts need
// not: what they have to say of races they have said.
func init() { _ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")) }
