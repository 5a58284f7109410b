//go:build !linux

package loop

import (
	"errors"
	"os"
)

func threadID() int { return 0 }

func duplicate(int) (*os.File, error) { return nil, errors.ErrUnsupported }
