package uring_test

import (
	"testing"
	"unsafe"

	"github.com/tallywheel/tallywheel/uring"
)

// TestSizes: a server that waits for each of its connections has an operation and a file for each.
func TestSizes(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("SKIPPED: the sizes are those of 64 bits; GOARCH=amd64 or arm64 has them")
	}
	for name, s := range map[string]struct{ is, most uintptr }{
		"Op": {unsafe.Sizeof(uring.Op{}), 192}, "File": {unsafe.Sizeof(uring.File{}), 24},
	} {
		if s.is > s.most {
			t.Errorf("%s has %d bytes: want at most %d; what few of them need goes behind a pointer", name, s.is, s.most)
		}
	}
}

// TestCopyThatIsFilledAnew: what a copy is asked for is not asked of the operation that it was
// copied from, also where it is kept behind a pointer.
func TestCopyThatIsFilledAnew(t *testing.T) {
	kinds(t, func(t *testing.T, cfg uring.Config) {
		r := open(t, cfg)
		first, second := pipe(t)
		var op uring.Op
		op.CloseFile(first)
		other := op
		other.CloseFile(second)
		if err := r.Push(&op); err != nil {
			t.Fatal(err)
		}
		if first.FD() != -1 || second.FD() == -1 {
			t.Error("the operation closes the file of its copy")
		}
		if err := r.Wait(1); err != nil || r.Next() != &op || op.Err() != nil {
			t.Errorf("%v, %v", err, op.Err())
		}
	})
}
