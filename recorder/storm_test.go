package recorder

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// storms is how many lives of a recorder TestEveryAcknowledgedByteIsInTheBooks goes through.
const storms = 12

// Senders connect, send, hang up or stay, while sources are changed, and the recorder is stopped at
// any moment: the bytes that the senders' kernels were told had arrived are those in the books.
func TestEveryAcknowledgedByteIsInTheBooks(t *testing.T) {
	for seed := range uint64(storms) {
		rng := rand.New(rand.NewPCG(seed, 5))
		dir := t.TempDir()
		strategy := strategies[rng.IntN(len(strategies))]
		g := start(t, dir, func(c *config.Config) { c.Read.Strategy = strategy },
			lines("a", []string{config.PeersFirst, config.PeersNewest}[rng.IntN(2)]))
		addr := address(g, "a")
		var acked, sent, forgotten atomic.Uint64
		var senders sync.WaitGroup
		quit := make(chan struct{})
		for n := range 4 {
			rng := rand.New(rand.NewPCG(seed, uint64(100+n)))
			senders.Go(func() {
				for {
					select {
					case <-quit:
						return
					default:
						acked.Add(sendSome(addr, rng, &sent, &forgotten))
					}
				}
			})
		}
		for range rng.IntN(6) {
			goal := sent.Load() + uint64(rng.IntN(60_000))
			testenv.Until(t, 20*time.Second, "senders send", func() bool { return sent.Load() >= goal })
			change(t, g, func(s *config.Source) {
				switch rng.IntN(3) {
				case 0:
					s.Frame.Max = 100 + rng.IntN(1000)
				case 1:
					s.Overflow = []string{
						config.OverflowBlock, config.OverflowNewest,
						config.OverflowOldest,
					}[rng.IntN(3)]
				default:
					s.TCP.Peers = []string{config.PeersFirst, config.PeersNewest}[rng.IntN(2)]
				}
			})
		}
		close(quit)
		last := stop(t, g)
		senders.Wait()
		var booked uint64
		sheets := past(t, dir) // the last is that of the whole start
		for _, s := range append(sheets[:len(sheets)-1], archive.StartSheet{Sheet: last}) {
			for _, p := range s.Sheet.Ports {
				booked += p.Bytes.Read
				for _, n := range p.Unread {
					booked += n
				}
				if len(p.Unbalanced) > 0 || p.Frames.InFlight > 0 {
					t.Errorf("seed %d: %+v", seed, p)
				}
			}
		}
		if forgotten.Load() > 0 {
			t.Errorf("seed %d: %d connections are never ended", seed, forgotten.Load())
		}
		if booked < acked.Load() || booked > sent.Load() { // what was taken last may not have been acknowledged
			t.Errorf("seed %d, %s: %d bytes sent, %d acknowledged, %d in the books of %d sheets",
				seed, strategy, sent.Load(), acked.Load(), booked, len(sheets))
		}
	}
}

// sendSome makes one connection, and returns how many bytes of it were acknowledged when the other
// side has ended it.
func sendSome(addr string, rng *rand.Rand, sent, forgotten *atomic.Uint64) (acked uint64) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return 0
	}
	defer conn.Close()
	c := conn.(*net.TCPConn)
	var b []byte
	for i := range 1 + rng.IntN(2000) {
		b = fmt.Appendf(b, "line %d\n", i)
	}
	written := uint64(0)
	for len(b) > 0 {
		n, err := c.Write(b[:min(len(b), 1+rng.IntN(5000))])
		sent.Add(uint64(n))
		written += uint64(n)
		if b = b[n:]; err != nil {
			break
		}
	}
	if rng.IntN(40) == 0 { // it stays open, silent, for longer than it takes to be replaced
		_ = c.SetReadDeadline(time.Now().Add(takeover * 3 / 2))
		_, _ = c.Read(make([]byte, 1))
		_ = c.SetReadDeadline(time.Time{})
	}
	_ = c.CloseWrite()
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) { // else the end, in order or not
		forgotten.Add(1)
	}
	raw, err := c.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { acked, _ = sys.Acknowledged(int(fd)) })
	}
	return min(acked, written) // the end is acknowledged, too, as if it were a byte
}
