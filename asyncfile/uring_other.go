//go:build !linux

package asyncfile

import (
	"fmt"
	"os"
	"runtime"
)

func ringed() error { return fmt.Errorf("io_uring: %w: %s has none", ErrUnavailable, runtime.GOOS) }

func newRinged(*os.File, Config, Choice) (File, error) { return nil, ringed() }
