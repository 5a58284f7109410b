package recorder

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/sockets"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// The dial of a device that does not answer ends, and says so; left to the kernel it lasts for two
// minutes.
func TestADialIsBounded(t *testing.T) {
	o := &dialOpener{testenv.Unanswered(t), 50 * time.Millisecond}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	d, err := o.open(ctx)
	if want := "dial tcp " + o.addr + ": the device does not answer within 50ms"; d != nil || err == nil ||
		err.Error() != want {
		t.Errorf("open: %v, %v; want %s", d, err, want)
	}
	if ctx.Err() != nil {
		t.Error("it lasted as long as it might")
	}
}

// Other errors of a dial stay as they are.
func TestADialThatIsRefusedSaysSo(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	o := &dialOpener{l.Addr().String(), sockets.AnswersWithin}
	if _, err := o.open(t.Context()); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("open: %v; want connection refused", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := o.open(ctx); err == nil || strings.Contains(err.Error(), "answer") {
		t.Errorf("open with a context that is done: %v", err)
	}
}

// A source whose device does not answer says so, on the first start and on a later one, and it is
// in an outage from the beginning.
func TestADeviceThatDoesNotAnswerIsNotThere(t *testing.T) {
	dir, addr := t.TempDir(), testenv.Unanswered(t)
	source := config.Source{ID: "a", TCP: &config.Net{Dial: addr}, Frame: tcp("a").Frame}
	for _, want := range []string{outageConnecting + addr, outageNotRunning + "; then: "} {
		g := start(t, dir, nil, source)
		testenv.Until(t, 20*time.Second, "the outage says "+want, func() bool {
			p := portOf(g, "a")
			return p.State == ledger.StateWaiting && strings.Contains(p.Why, addr) && p.OutageCount == 1 &&
				strings.HasPrefix(p.Outages[0].Cause, want)
		})
		stop(t, g)
	}
}
