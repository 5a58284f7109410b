package isolate

import (
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// What the keeper is told while there are no descriptors it is told once there are.
func TestPutOutlastsAWantOfDescriptors(t *testing.T) {
	ours, theirs := linkPair(t)
	mine, err := sys.Eventfd()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sys.CloseFD(mine) }()
	restore := testenv.WithoutDescriptors(t)
	restored := make(chan struct{})
	time.AfterFunc(5*sendRest, func() { defer close(restored); restore() })
	sent := make(chan error, 1)
	go func() { sent <- newLink(ours).Put("x", nil, mine) }()
	<-restored
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	m, fds, err := receive(theirs)
	Entry{FDs: fds}.CloseFDs()
	if err != nil || m.Name != "x" || len(fds) != 1 {
		t.Errorf("the keeper is told %+v, with %d descriptors: %v", m, len(fds), err)
	}
}
