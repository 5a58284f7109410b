package recorder

import (
	"context"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/ledger"
)

// stuck is a connection that waits, and stays open.
type stuck struct {
	holding
	from   string
	closed bool
}

func (c *stuck) name() string    { return c.from }
func (c *stuck) deafen()         {}
func (c *stuck) discard() uint64 { return c.bytes }
func (c *stuck) close() error    { c.closed = true; return nil }

// oneDoor is a door at which one connection waits.
type oneDoor struct {
	door
	entrance
	next device
}

func (d *oneDoor) listen(context.Context) error { return nil }
func (d *oneDoor) waits() bool                  { return d.next != nil }
func (d *oneDoor) counts() *entrance            { return &d.entrance }
func (d *oneDoor) take() (next device, err error) {
	next, d.next = d.next, nil
	return next, nil
}

// Connections of one address that wait do not keep those of others out for ever: its newest are
// refused, and counted.
func TestOneAddressDoesNotKeepOthersOut(t *testing.T) {
	g := start(t, t.TempDir(), nil, all("a", 4))
	defer stop(t, g)
	for name, waited := range map[string]time.Duration{"at once": 0, "for long": crowdPatience} {
		t.Run(name, func(t *testing.T) {
			l, _ := testLane(t, config.OverflowBlock)
			p, _ := newRemotePort(l, nil, g.slog)
			other := &stuck{from: "127.0.0.3:1"}
			h := &hub{r: g, p: p, l: &oneDoor{next: other}}
			var crowd []*stuck
			for i := range maxArrivals {
				c := &stuck{holding: holding{bytes: 10}, from: "127.0.0.2:1"}
				if i == maxArrivals-1 {
					c.from = "127.0.0.4:1"
				}
				crowd = append(crowd, c)
				h.arrived(c)
				h.waiting[i].came = time.Now().Add(-waited)
			}
			if err := h.accept(context.Background()); err != nil {
				t.Fatal(err)
			}
			refused := uint64(0)
			for i, c := range crowd {
				if c.closed {
					refused++
				}
				if want := waited > 0 && i >= maxOfOne && i < maxArrivals-1; c.closed != want {
					t.Errorf("connection %d is refused: %v, want %v", i, c.closed, want)
				}
			}
			comes := h.waiting[len(h.waiting)-1].guest.connection == connection(other)
			if want := waited > 0; comes != want {
				t.Errorf("the other one may wait: %v, want %v", comes, want)
			}
			s := l.in.book.Sheet("a", "", ledger.Held{}, nil)
			if s.Refused[refusedCrowd] != refused || s.Unread[unreadRefused] != 10*refused {
				t.Errorf("%d are refused; the books say %v, unread %v", refused, s.Refused, s.Unread)
			}
		})
	}
}
