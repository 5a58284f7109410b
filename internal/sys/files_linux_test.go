package sys

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

func TestTooFewFiles(t *testing.T) {
	few := TooFewFiles(fmt.Errorf("socket: %w", syscall.EMFILE))
	if !errors.Is(few, syscall.EMFILE) || !strings.Contains(few.Error(), "raise the limit of descriptors (ulimit -n") {
		t.Error(few)
	}
	if other := TooFewFiles(syscall.ECONNREFUSED); other != syscall.ECONNREFUSED {
		t.Error(other)
	}
}
