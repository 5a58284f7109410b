package forward

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Bounds of watch.
const (
	leaderLook = time.Second     // between two looks whether an acknowledgement is late
	ackLate    = 2 * time.Second // from then on one is
)

// lead is who leads a stream of a cluster, and since when, in ns since 1970; 0: the server does not
// say.
type lead struct {
	name  string
	since int64
}

func leadOf(c *jetstream.ClusterInfo) lead {
	l := lead{name: c.Leader}
	if c.LeaderSince != nil {
		l.since = c.LeaderSince.UnixNano()
	}
	return l
}

// watch ends the link once an acknowledgement is late and the lead is not that of the beginning: a
// leader that was killed, or cut off, took the message with it, and nobody will answer. While the
// lead is the same, the cluster is slow, and is waited for. It runs on a goroutine of its own.
func (n *natsLink) watch(ctx context.Context, was lead) {
	tick := time.NewTicker(leaderLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !n.late() {
			continue
		}
		i, err := infoOf(ctx, n.stream)
		if err != nil || i.Cluster == nil {
			continue
		}
		if now := leadOf(i.Cluster); now.name != "" && now != was {
			n.end(down(reasonNoAnswer,
				"a message was not acknowledged, and stream %s has another leader since: it is looked at again",
				i.Config.Name))
			return
		}
	}
}

// late reports whether the acknowledgement of a message of a lane is.
func (n *natsLink) late() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range n.waiting {
		if !m.sent.IsZero() && time.Since(m.sent) > ackLate {
			return true
		}
	}
	return false
}
