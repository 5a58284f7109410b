package loop_test

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/server/internal/loop"
	"github.com/tallywheel/tallywheel/server/internal/loop/looptest"
)

var seeds = flag.Int("seeds", testenv.Rounds(60, 10), "seeds of each test with a network in memory")

// life is an App that notes what it is told, and ends as its test wants.
type life struct {
	c      *loop.Conn
	input  func(b loop.Lent)
	ended  func(error)
	closed bool
	heard  []string
}

func (a *life) note(format string, args ...any) {
	a.heard = append(a.heard, fmt.Sprintf(format, args...)+" "+a.c.State().String())
}
func (a *life) Begin() { a.note("begin") }
func (a *life) Input(b loop.Lent) {
	a.note("input %s", b)
	if a.input != nil {
		a.input(b)
	}
}

func (a *life) Ended(err error) {
	a.note("ended %v", err)
	if a.ended != nil {
		a.ended(err)
	}
}
func (a *life) Sent()            {}
func (a *life) Writable()        {}
func (a *life) Expired()         { a.note("expired") }
func (a *life) Posted()          {}
func (a *life) Drain()           {}
func (a *life) EndIdle()         {}
func (a *life) HeadSince() int64 { return 0 }
func (a *life) Died()            { a.note("died"); a.c.Finish(true) }
func (a *life) MayClose() bool   { return true }
func (a *life) Closed()          { a.closed = true; a.note("closed") }

// TestLifeOfAConnection holds the table of the package comment: what an App hears in which state.
func TestLifeOfAConnection(t *testing.T) {
	cases := []struct {
		name  string
		end   looptest.End
		app   func(a *life)
		heard string
		got   string
	}{
		{
			"the peer ends first, the App with output", looptest.HalfClose,
			func(a *life) { a.ended = func(error) { a.c.Write([]byte("bye")); a.c.Finish(true) } },
			"begin open|input hi open|ended EOF open|closed dead", "bye",
		},
		{
			"the App ends at once, without lingering", looptest.HalfClose,
			func(a *life) { a.input = func(loop.Lent) { a.c.Finish(false) } },
			"begin open|input hi open|closed dead", "",
		},
		{
			"the App ends with output and lingers: what still comes is thrown away", looptest.HalfClose,
			func(a *life) { a.input = func(loop.Lent) { a.c.Write([]byte("bye")); a.c.Finish(true) } },
			"begin open|input hi open|closed dead", "bye",
		},
		{
			"the peer resets", looptest.Reset, func(*life) {},
			"begin open|input hi open|ended connection reset by peer open|closed dead", "",
		},
		{
			"the peer resets while output is sent", looptest.Reset,
			func(a *life) { a.input = func(loop.Lent) { a.c.Write(bytes.Repeat([]byte("x"), 3)) } },
			"begin open|input hi open|ended connection reset by peer open|closed dead", "xxx",
		},
		{
			"a handler calls runtime.Goexit", looptest.HalfClose,
			func(a *life) { a.input = func(loop.Lent) { runtime.Goexit() } },
			"begin open|input hi open|died open|closed dead", "",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			client := &looptest.Client{Send: []byte("hi"), End: c.end}
			var a *life
			err := looptest.Run(looptest.Config{
				Seed: 1, Gentle: true, OnLoop: true,
				NewApp: func(conn *loop.Conn) loop.App {
					a = &life{c: conn}
					c.app(a)
					return a
				},
			}, []*looptest.Client{client})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(a.heard, "|"); got != c.heard {
				t.Errorf("the App heard\n%s, want\n%s", got, c.heard)
			}
			if string(client.Got) != c.got || !a.closed {
				t.Errorf("the client got %q, want %q; closed: %v", client.Got, c.got, a.closed)
			}
		})
	}
}

// content is what client i sends.
func content(rng *rand.Rand, i int) []byte {
	b := make([]byte, rng.IntN(60_000))
	for k := range b {
		b[k] = byte(i*31 + k*7 + k>>8)
	}
	return b
}

// echo copies what comes until its end, in pieces of any size.
func echo(rng *rand.Rand, c io.ReadWriter) {
	buf := make([]byte, 1+rng.IntN(40_000))
	for {
		n, err := c.Read(buf)
		for b := buf[:n]; len(b) > 0; {
			m, err := c.Write(b)
			if err != nil {
				return
			}
			b = b[m:]
		}
		if err != nil {
			return
		}
	}
}

type echoService struct {
	c    *loop.CoConn
	rng  *rand.Rand
	last bool // on a goroutine
}

func (s *echoService) Begin()  {}
func (s *echoService) Closed() {}
func (s *echoService) Serve() loop.Verdict {
	if s.last {
		return loop.Promote
	}
	echo(s.rng, s.c)
	_ = s.c.End(true)
	return loop.Over
}

func (s *echoService) Promoted(g *loop.GoConn) {
	echo(s.rng, g)
	_ = g.End(true)
}

// TestEcho: whatever the pieces and the order, each client gets its own bytes, all of them, and the
// connection ends.
func TestEcho(t *testing.T) {
	for name, kind := range map[string]struct{ coroutine, promote, aside, awaits bool }{
		"coroutine": {coroutine: true}, "goroutine": {}, "goroutine that receives": {aside: true},
		"goroutine by the first byte": {awaits: true}, "… that receives": {awaits: true, aside: true},
		"promoted":           {coroutine: true, promote: true},
		"promoted, receives": {coroutine: true, promote: true, aside: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(*seeds) {
				rng := rand.New(rand.NewPCG(seed, 2))
				var clients []*looptest.Client
				for i := range 1 + rng.IntN(5) {
					c := &looptest.Client{Send: content(rng, i)}
					if rng.IntN(4) == 0 {
						c.End = looptest.Reset
					}
					clients = append(clients, c)
				}
				err := looptest.Run(looptest.Config{
					Seed: seed, Aside: kind.aside, OnLoop: kind.coroutine,
					NewApp: func(c *loop.Conn) loop.App {
						if kind.coroutine {
							g := loop.NewCoConn(c)
							g.Serve(&echoService{c: g, rng: rand.New(rand.NewPCG(seed, 3)), last: kind.promote})
							return g
						}
						g := loop.NewGoConn(c, func(g *loop.GoConn) {
							echo(rand.New(rand.NewPCG(seed, 3)), g)
							_ = g.End(true)
						})
						if kind.awaits {
							g.AwaitInput(time.Minute)
						}
						return g
					},
				}, clients)
				if err != nil {
					t.Fatal(err)
				}
				for i, c := range clients {
					if c.End == looptest.HalfClose && !bytes.Equal(c.Got, c.Send) || !bytes.HasPrefix(c.Send, c.Got) {
						t.Fatalf("seed %d, client %d: %d bytes came back of %d, and they are not its own", seed, i,
							len(c.Got), len(c.Send))
					}
				}
			}
		})
	}
}

// TestSilentConnections: one on which nothing comes is nobody's until it ends: by its peer, a
// reset, or the time for the first byte.
func TestSilentConnections(t *testing.T) {
	var served atomic.Int32
	serve := func(g *loop.GoConn) {
		served.Add(1)
		_, _ = io.Copy(io.Discard, g)
		_ = g.End(false)
	}
	for name, c := range map[string]struct {
		client *looptest.Client
		within time.Duration
		want   int32
	}{
		"ended":  {&looptest.Client{}, 0, 0},
		"reset":  {&looptest.Client{End: looptest.Reset}, time.Hour, 0},
		"late":   {&looptest.Client{End: looptest.Never}, time.Millisecond, 0},
		"speaks": {&looptest.Client{Send: []byte("a")}, time.Hour, 1},
	} {
		served.Store(0)
		began := int64(-1)
		err := looptest.Run(looptest.Config{Seed: 1, Gentle: true, NewApp: func(conn *loop.Conn) loop.App {
			g := loop.NewGoConn(conn, serve)
			g.AwaitInput(c.within)
			began = g.Began()
			return g
		}}, []*looptest.Client{c.client})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := served.Load(); n != c.want || began <= 0 {
			t.Errorf("%s: served %d times, want %d; it began at %d", name, n, c.want, began)
		}
	}
}

// TestInput holds Input to a plain slice: whatever is lent, consumed and settled, the bytes are
// those that came.
func TestInput(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 4))
		var in loop.Input
		var model []byte
		next := byte(0)
		for range 300 {
			lent := make(loop.Lent, rng.IntN(5_000))
			for i := range lent {
				lent[i] = next
				next++
			}
			in.Lend(lent)
			model = append(model, lent...)
			if rng.IntN(2) == 0 && in.Len() > 0 {
				n := rng.IntN(in.Len() + 1)
				in.Consume(n)
				model = model[n:]
			}
			in.Settle()
			for i := range lent { // the driver's again
				lent[i] = 0xdd
			}
			p := make([]byte, rng.IntN(6_000))
			n := in.Read(p)
			if !bytes.Equal(p[:n], model[:n]) {
				t.Fatalf("seed %d: Read gives other bytes than came", seed)
			}
			model = model[n:]
			if !bytes.Equal(in.Bytes(), model) {
				t.Fatalf("seed %d: %d bytes are kept, want %d, or they are others", seed, in.Len(), len(model))
			}
		}
		in.Drop()
	}
}

// TestDeadlines: a deadline is told once it has passed, the earlier one first, and one that was
// taken back is not.
func TestDeadlines(t *testing.T) {
	var a *deadlines
	began := time.Now()
	client := &looptest.Client{Send: []byte("x")}
	err := looptest.Run(looptest.Config{Seed: 1, Gentle: true, NewApp: func(c *loop.Conn) loop.App {
		a = &deadlines{life: life{c: c}}
		return a
	}}, []*looptest.Client{client})
	if err != nil {
		t.Fatal(err)
	}
	if a.expired != 1 || time.Since(began) < 30*time.Millisecond {
		t.Errorf("%d deadlines passed, after %v, want 1 after 30 ms", a.expired, time.Since(began))
	}
}

type deadlines struct {
	life
	expired int
}

func (a *deadlines) Begin() {
	now := a.c.Loop().Now()
	a.c.SetWriteBy(now + int64(10*time.Millisecond))
	a.c.SetWriteBy(0)
	a.c.SetReadBy(now + int64(time.Hour))
	a.c.SetReadBy(now + int64(30*time.Millisecond))
}
func (a *deadlines) Ended(error) {}
func (a *deadlines) Expired() {
	a.expired++
	if a.c.Loop().Now() < a.c.ReadBy() {
		panic("too early")
	}
	a.c.Finish(false)
}
