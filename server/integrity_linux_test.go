package server_test

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"hash/maphash"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/server"
)

var (
	integrityAnswers = flag.Int("answers", 12_000, "answers of TestIntegrity, all configurations together")
	integritySeed    = flag.Uint64("seed", 0, "of TestIntegrity; 0: a new one")
	integrityWithout = flag.String("without", "", "abuses that TestIntegrity leaves out, with commas between")
)

// setup is a configuration under test.
type setup struct {
	way
	loops     int
	lean, tls bool
	conn      bool
}

func (s setup) String() string {
	name := s.way.String()
	for _, part := range []struct {
		is   bool
		name string
	}{{s.lean, "lean"}, {s.tls, "tls"}, {s.conn, "conn"}, {s.loops > 0, fmt.Sprint(s.loops)}} {
		if part.is {
			name += "-" + part.name
		}
	}
	return name
}

// setups are all: each engine, mode and kind of handler, by one to three loops.
func setups(t testing.TB) (all []setup) {
	add := func(w way, s setup) {
		s.way = w
		if w.Engine == server.Std {
			all = append(all, s)
			return
		}
		for s.loops = 1; s.loops <= 3; s.loops++ {
			all = append(all, s)
		}
	}
	for _, w := range ways(t, ofHTTP) {
		add(w, setup{})
		add(w, setup{conn: true})
		if w.Mode == server.Goroutine {
			add(w, setup{tls: true})
			if w.Engine != server.Std { // TestTLSIsForConnHandlersToo looks at it
				add(w, setup{conn: true, tls: true})
			}
		}
	}
	for _, w := range ways(t, ofLean) {
		add(w, setup{lean: true})
	}
	return all
}

// tally is what came of a run.
type tally struct {
	answers                atomic.Int64
	wrong, missing, others atomic.Int64
}

// TestIntegrity asks random requests in random rude ways, and looks for a byte of one connection in
// another, and for answers that are wrong, out of order, twice there, cut or missing. What a client
// may expect is what net/http does: engine std is held to the same rules. After each kind of abuse
// everything must go back to where it was.
//
//	go test ./server -run TestIntegrity -answers 10000000 -seed 1
func TestIntegrity(t *testing.T) {
	seed := *integritySeed
	if seed == 0 {
		seed = testenv.Seed(t)
	}
	all := setups(t)
	sum := maphash.Bytes(hashSeed, block)
	cert := newCert(t)
	var total tally
	defer report(&total, *integrityAnswers)()
	for i, s := range all {
		t.Run(s.String(), func(t *testing.T) {
			c := &check{
				setup: s, seed: seed, total: &total, cert: cert,
				from: int64(*integrityAnswers * i / len(all)), to: int64(*integrityAnswers * (i + 1) / len(all)),
			}
			c.run(t)
			if maphash.Bytes(hashSeed, block) != sum {
				t.Fatal("the server has written into the memory of a handler")
			}
		})
	}
	if n := total.wrong.Load() + total.missing.Load() + total.others.Load(); n > 0 {
		t.Errorf("%d wrong, %d missing, %d that hang or else, in %d answers", total.wrong.Load(), total.missing.Load(),
			total.others.Load(), total.answers.Load())
	}
}

// report tells how a long run goes on.
func report(total *tally, of int) (stop func()) {
	if of < 1_000_000 {
		return func() {}
	}
	done, began := make(chan bool), time.Now()
	var all sync.WaitGroup
	all.Go(func() {
		for tick := time.NewTicker(5 * time.Second); ; {
			select {
			case <-done:
				tick.Stop()
				return
			case <-tick.C:
				n := total.answers.Load()
				fmt.Fprintf(os.Stderr, "%d of %d answers, %.0f/s, %d wrong, %d missing, %d else\n", n, of,
					float64(n)/time.Since(began).Seconds(),
					total.wrong.Load(), total.missing.Load(), total.others.Load())
			}
		}
	})
	return func() { close(done); all.Wait() }
}

// check is the test of one configuration.
type check struct {
	setup
	seed     uint64
	total    *tally
	cert     tls.Certificate
	from, to int64 // of all answers
	r        *running
	failures atomic.Int64
	phases   int
}

const (
	askers      = 8
	maxFailures = 3 // of a configuration: then it ends
)

func (c *check) run(t *testing.T) {
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	t.Run("load", func(t *testing.T) {
		cfg := server.Config{Loops: c.loops, ReadTimeout: time.Hour, IdleTimeout: time.Hour, WriteTimeout: time.Hour}
		if c.tls {
			cfg.TLS = &tls.Config{Certificates: []tls.Certificate{c.cert}, NextProtos: []string{"http/1.1"}}
		}
		kinds := abuses
		switch {
		case c.conn:
			cfg.Conn = connAsk
			kinds = connAbuses
		case c.lean:
			cfg.Lean = leanAsk
			kinds = leanAbuses
		default:
			cfg.Handler = http.HandlerFunc(answerAsk)
		}
		kinds = slices.DeleteFunc(slices.Clone(kinds), func(k string) bool { return c.without(k) })
		c.r = serve(t, c.way, cfg)
		c.phase(t, kinds, 1) // what is needed once
		base := c.idle(t, "", 0, 0, 0)
		rest := c.to - c.from
		const enough = 5000 // answers, to look for what each kind alone leaves behind
		for _, k := range kinds {
			if rest < enough {
				break
			}
			c.phase(t, []string{k}, rest/2/int64(len(kinds)))
			c.idle(t, k, base.goroutines, base.files, base.heap)
		}
		if rest >= enough {
			rest /= 2
		}
		c.phase(t, kinds, rest)
		c.idle(t, "all abuses", base.goroutines, base.files, base.heap)
		if rest >= enough/2 || c.loops < 2 {
			quiet(t)
		}
	})
	until(t, "all goroutines of the server to end", func() bool { return runtime.NumGoroutine() <= goroutines })
	until(t, "all descriptors of the server to be closed", func() bool { return openFiles(t) <= files })
}

func (c *check) without(what string) bool {
	return slices.Contains(strings.Split(*integrityWithout, ","), what)
}

// resources are what a server holds.
type resources struct{ goroutines, files, heap int }

// idle waits until the server holds no more than before; zeros are no bounds.
func (c *check) idle(t *testing.T, after string, goroutines, files, heap int) resources {
	t.Helper()
	if c.failures.Load() > 0 {
		return resources{}
	}
	ok := until(t, "no open connections after "+after, func() bool { return c.r.Stats().Open == 0 })
	if c.Mode == server.Coroutine {
		// Coroutines that rest until the next connection: one for each that was open at a time, and
		// an asker begins its next one before the loop has seen the end of the last.
		goroutines += 4 * c.loops * askers
	}
	if files > 0 {
		ok = ok && until(t, "fewer goroutines after "+after,
			func() bool { return runtime.NumGoroutine() <= goroutines }) &&
			until(t, "fewer descriptors after "+after, func() bool { return openFiles(t) <= files })
	} else {
		settle(t)
	}
	if !ok {
		c.failures.Add(maxFailures)
		c.total.others.Add(1)
	}
	const more = 4 << 20 // that pools and buffers of loops may keep
	now := resources{runtime.NumGoroutine(), openFiles(t), liveHeap()}
	if heap > 0 && now.heap > heap+more {
		t.Errorf("after %s %d bytes are held, before it were %d", after, now.heap, heap)
	}
	return now
}

// settle waits until goroutines and descriptors are the same for a while.
func settle(t *testing.T) {
	last, same := 0, 0
	until(t, "the server to come to rest", func() bool {
		now := runtime.NumGoroutine()*1000 + openFiles(t)
		if same++; now != last {
			last, same = now, 0
		}
		return same >= 10
	})
}

// phase plays scripts until there were n answers.
func (c *check) phase(t *testing.T, kinds []string, n int64) {
	t.Helper()
	if len(kinds) == 0 || c.failures.Load() > 0 {
		return
	}
	c.phases++
	var left atomic.Int64
	left.Store(n)
	var all sync.WaitGroup
	for i := range min(askers, 3+int(n/100)) {
		all.Go(func() { c.client(t, i, kinds, &left) })
	}
	all.Wait()
}

// number is the configuration's and the phase's own.
func (c *check) number() uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, c.setup, c.phases)
	return h.Sum64()
}

// client is one client of a phase.
func (c *check) client(t *testing.T, i int, kinds []string, left *atomic.Int64) {
	k := &asker{
		addr: c.r.addr, lean: c.lean, buf: make([]byte, 32<<10),
		done: func(n int) { left.Add(-int64(n)); c.total.answers.Add(int64(n)) },
	}
	if c.tls {
		k.tls = &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}} // the certificate is nobody's
	}
	for n := 0; left.Load() > 0 && c.failures.Load() < maxFailures; n++ {
		k.rng = rand.New(rand.NewPCG(c.seed^c.number(), uint64(i)<<32|uint64(n)))
		abuse := kinds[k.rng.IntN(len(kinds))]
		var err error
		var what fmt.Stringer
		if c.conn {
			s := newConnScript(k.rng, abuse)
			what, err = s, k.playConn(s)
		} else {
			s := newScript(k.rng, abuse, c.lean, c.Mode == server.Inline && !c.without("setbuffer"),
				c.Engine == server.Std)
			what, err = s, k.play(s)
		}
		if err == nil {
			continue
		}
		c.failures.Add(1)
		switch {
		case errors.Is(err, errWrong):
			c.total.wrong.Add(1)
		case errors.Is(err, errMissing):
			c.total.missing.Add(1)
		default:
			c.total.others.Add(1)
		}
		t.Errorf("phase %d, client %d, connection %d, %v: %v", c.phases, i, n, what, err)
	}
}
