package testenv

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// NoLeaks runs the tests of a package, and fails if they leave goroutines behind. Those have a
// minute to end: goleak by itself gives them half a second, which a busy machine takes.
func NoLeaks(m *testing.M) {
	code := m.Run()
	if code == 0 {
		err := goleak.Find()
		for late := time.Now().Add(time.Minute); err != nil && time.Now().Before(late); {
			err = goleak.Find()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
