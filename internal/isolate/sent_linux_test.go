package isolate

import (
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// What the keeper is told while there are no descriptors it is told once there are.
func TestPutOutlastsAWantOfDescriptors(t *testing.T) {
	ours, theirs := linkPair(t)
	mine, err := sys.Eventfd()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sys.CloseFD(mine) }()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	none := before
	none.Cur = 1
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	restored := make(chan error)
	time.AfterFunc(5*sendRest, func() { restored <- syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before) })
	sent := make(chan error, 1)
	go func() { sent <- newLink(ours).Put("x", nil, mine) }()
	if err := <-restored; err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	m, fds, err := receive(theirs)
	Entry{FDs: fds}.CloseFDs()
	if err != nil || m.Name != "x" || len(fds) != 1 {
		t.Errorf("the keeper is told %+v, with %d descriptors: %v", m, len(fds), err)
	}
}
