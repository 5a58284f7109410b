package sys

import (
	"errors"
	"fmt"
	"syscall"
)

// TooFewFiles adds to an error for want of descriptors what to do.
func TooFewFiles(err error) error {
	var limit syscall.Rlimit
	if !errors.Is(err, syscall.EMFILE) || syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return err
	}
	return fmt.Errorf("%w; this process may have %d: raise the limit of descriptors (ulimit -n, LimitNOFILE=)", err,
		limit.Cur)
}
