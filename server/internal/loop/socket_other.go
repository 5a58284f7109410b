//go:build !linux

package loop

import (
	"errors"
	"os"
)

func duplicate(int) (*os.File, error) { return nil, errors.ErrUnsupported }
