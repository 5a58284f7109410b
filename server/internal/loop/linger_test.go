package loop_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallywheel/tallywheel/server/internal/loop"
	"github.com/tallywheel/tallywheel/server/internal/loop/looptest"
)

// TestLingering says how long a connection that is over waits for a peer which may still send, and
// that nothing which the peer will still take is lost.
func TestLingering(t *testing.T) {
	const ms, kib = time.Millisecond, 1 << 10
	sends := func(every, until time.Duration, n int) (all []looptest.Piece) {
		for at := every; at <= until; at += every {
			all = append(all, looptest.Piece{At: at, Send: make([]byte, n)})
		}
		return all
	}
	cases := []struct {
		name         string
		later        []looptest.Piece
		reads, ended time.Duration
		lost         bool
	}{
		{name: "the peer has all, and is silent", ended: loop.LingerFor},
		{
			name: "it still sends: half a second of silence ends that", later: sends(400*ms, 2000*ms, 1),
			ended: 2500 * ms,
		},
		{
			name: "it has not read, and sends again after a pause", later: sends(3000*ms, 3000*ms, 1),
			reads: 2900 * ms, ended: 3500 * ms,
		},
		{name: "it reads late, and sends nothing", reads: 4200 * ms, ended: 4500 * ms},
		{
			name: "it never reads", later: sends(40_000*ms, 40_000*ms, 1), reads: time.Hour, ended: 30_000 * ms,
			lost: true,
		},
		{name: "it never ends sending", later: sends(200*ms, 40_000*ms, 100), ended: 30_000 * ms},
		{
			name: "it sends 256 KiB", later: sends(200*ms, 3200*ms, 16*kib),
			ended: 3500 * ms,
		},
		{
			name: "it sends more than that, and does not read", later: sends(200*ms, 10_000*ms, 80*kib),
			reads: time.Hour, ended: 1000 * ms, lost: true,
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			client := &looptest.Client{Send: []byte("hi"), Later: c.later, Reads: c.reads, End: looptest.Never}
			synctest.Test(t, func(t *testing.T) {
				err := looptest.Run(looptest.Config{
					Seed: 1, Gentle: true, OnLoop: true, Limit: time.Hour,
					NewApp: func(conn *loop.Conn) loop.App {
						a := &life{c: conn}
						a.input = func(loop.Lent) { conn.Write([]byte("bye")); conn.Finish(true) }
						return a
					},
				}, []*looptest.Client{client})
				if err != nil {
					t.Fatal(err)
				}
			})
			if lost := client.Lost > 0; lost != c.lost || !lost && string(client.Got) != "bye" {
				t.Errorf("the peer got %q and lost %d bytes; lost: want %v", client.Got, client.Lost, c.lost)
			}
			// a look comes up to LingerFor after what it looks for; the network's tick is 1 ms
			if late := client.Ended - c.ended; late < 0 || late > loop.LingerFor+50*ms {
				t.Errorf("the connection ended after %v, want %v", client.Ended, c.ended)
			}
		})
	}
}
