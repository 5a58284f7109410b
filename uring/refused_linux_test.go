package uring_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/uring"
	"github.com/tallywheel/tallywheel/uring/uringtest"
)

func TestMain(m *testing.M) { uringtest.Main(m) }

// Where io_uring is refused every test passes or skips, and the error says what refuses it.
func TestRefusedBySeccomp(t *testing.T) {
	out := uringtest.Refused(t, ".")
	if !strings.Contains(out, "seccomp filter or a security module") {
		t.Errorf("nothing says what refuses:\n%s", out)
	}
}

func TestRefusedBySysctl(t *testing.T) {
	out := uringtest.Disabled(t, ".")
	if !strings.Contains(out, "kernel.io_uring_disabled is 2") {
		t.Errorf("nothing says what refuses:\n%s", out)
	}
}

// The error of New is of one kind, whatever the cause.
func TestErrorWhereRefused(t *testing.T) {
	r, err := uring.New(uring.Config{})
	if err == nil {
		if err := errors.Join(r.Close(), uring.Probe().Has(uring.Rings)); err != nil {
			t.Error(err)
		}
		return
	}
	var fe *uring.FeatureError
	if !errors.As(err, &fe) || !errors.Is(err, uring.ErrForbidden) && !errors.Is(err, uring.ErrNotSupported) {
		t.Errorf("%v", err)
	}
	if uring.Probe().Has(uring.Rings) == nil || uring.Probe().HasOp(uring.OpRead) == nil {
		t.Error("the probe says otherwise")
	}
	if os.Getenv("TALLYWHEEL_REFUSE_URING") != "" && !errors.Is(err, uring.ErrForbidden) {
		t.Errorf("seccomp is not ErrForbidden: %v", err)
	}
}
