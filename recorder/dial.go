package recorder

import (
	"context"
	"time"

	"github.com/tallywheel/tallywheel/internal/sockets"
)

// dialOpener connects to a device that listens.
type dialOpener struct {
	addr   string
	within time.Duration // the device has to answer: sockets.AnswersWithin, but in tests
}

// dials implements dialler.
func (o *dialOpener) dials() string { return o.addr }

func (o *dialOpener) open(ctx context.Context) (device, error) {
	fd, peer, err := sockets.Dial(ctx, o.addr, o.within, nil)
	if err != nil {
		return nil, err
	}
	return &socket{descriptor: fd, peer: peer}, nil
}

func (o *dialOpener) replaced() <-chan struct{}          { return nil }
func (o *dialOpener) close(bool) ([]device, bool, error) { return nil, false, nil }
