package recorder

import (
	"math/rand/v2"
	"testing"

	"github.com/tallywheel/tallywheel/internal/spool"
)

// Connections that the reader could not take are in the books once, whoever is killed: how many,
// and their bytes where those are known.
func TestRefusedByTheReader(t *testing.T) {
	for _, c := range []struct {
		n     int
		bytes uint64
		want  uint64
	}{{3, 700, 3}, {1, 0, 1}, {1 << 20, 9, 1<<16 - 1}} {
		for _, kills := range []int{0, 3, 9} {
			log := &killable{rng: rand.New(rand.NewPCG(1, 1))}
			s := script{
				{spool.Mark{Time: 1, Kind: spool.Opened}, nil},
				{spool.Mark{Time: 2, Kind: spool.Chunk}, frames(0, 10)},
				{spool.Mark{Time: 3, Kind: spool.Lost, A: spool.RefusedOf(c.n), B: c.bytes}, nil},
				{spool.Mark{Time: 4, Kind: spool.Ended}, nil},
			}
			p, _ := replayed(t, s.spooled(t), killedSource("tally128", false), log, kills)
			if p.Refused[refusedDescriptors] != c.want || p.Unread[unreadRefused] != c.bytes || p.Frames.Stored != 10 ||
				len(p.Unbalanced) > 0 {
				t.Errorf("%d connections with %d bytes: refused %v, unread %v, %d frames stored, %v", c.n, c.bytes, p.Refused,
					p.Unread, p.Frames.Stored, p.Unbalanced)
			}
		}
	}
}
