package recorder

import (
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
)

// Each source has what it needs, and what is left is shared: nobody gets what another is sure of.
func TestDescriptorsAreShared(t *testing.T) {
	of := func(sources ...config.Source) config.Config {
		return config.Config{Sources: sources, Server: config.Server{Loops: 1}}.WithDefaults()
	}
	two, many := of(tcp("a"), lines("b", "")), of(tcp("a"), all("b", 64))
	const open = 10
	least := open + ofLog + reserved + ofMoments + ofClients + 3 + 6 // of the API, and of two listeners
	for _, c := range []struct {
		name                  string
		cfg                   config.Config
		limit, clients, peers int
	}{
		{"the least", two, least, ofClients, 0},
		{"more, and no peers", two, least + 20, ofClients + 15, 5},
		{"half to each", many, least + 20, ofClients + 10, 10},
		{"more than the peers may be", many, least + 400, ofClients + 400 - 128, 128},
		{"a quarter to sources to come", many, least + 1000, ofClients + 750, 250},
		{"without a limit", many, math.MaxInt32, ofClients + mostClients, math.MaxInt32 - least - mostClients},
	} {
		d, err := newAllotment(c.cfg, c.limit, open)
		if err != nil || d.clients != c.clients || d.most != c.peers {
			t.Errorf("%s: %+v, %v; want %d for clients, %d for peers", c.name, d, err, c.clients, c.peers)
		}
	}
	apart := many
	apart.Isolate = "process"
	over := apart
	over.Sources = slices.Clone(apart.Sources)
	over.Sources[1].Overflow = config.OverflowSpill
	for _, c := range []struct {
		cfg  config.Config
		want int // of a peer
	}{{many, 1}, {apart, 3}, {over, 5}} {
		d, err := newAllotment(c.cfg, least+40, open)
		n := 0
		for err == nil && d.take() {
			n++
		}
		if err != nil || n != d.most/c.want {
			t.Errorf("%d peers have place in %d, %v: each takes %d", n, d.most, err, c.want)
		}
	}
	_, err := newAllotment(two, least-1, open)
	if !errors.Is(err, ErrDescriptors) ||
		!strings.Contains(err.Error(),
			fmt.Sprintf("may have %d, and needs %d for 2 sources: LimitNOFILE=", least-1, least)) {
		t.Errorf("with one too few (%d are needed): %v", least, err)
	}
}

// A start without enough descriptors says how many are needed; a reload that needs more than there
// are changes nothing.
func TestTooFewDescriptors(t *testing.T) {
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	set := func(n int) {
		now := before
		now.Cur = uint64(n)
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}()
	cfg := config.Config{
		Log: config.Log{Dir: t.TempDir(), Segment: 1 << 20}, API: config.API{Listen: "127.0.0.1:0"},
		Sources: []config.Source{tcp("a")},
	}
	set(descriptors(t) + 20)
	if g, err := Start(cfg, nil); !errors.Is(err, ErrDescriptors) {
		t.Errorf("the start brings %v, %v", g, err)
	}
	set(descriptors(t) + 100)
	g := start(t, t.TempDir(), nil, tcp("a"))
	defer stop(t, g)
	next := g.Config()
	for range 50 {
		next.Sources = append(next.Sources, tcp(fmt.Sprintf("more-%d", len(next.Sources))))
	}
	if err := g.Reload(next); !errors.Is(err, ErrDescriptors) || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("the reload brings %v", err)
	}
	if n := len(g.Sheet().Ports); n != 1 {
		t.Errorf("%d sources", n)
	}
}

// readToTheEnd gives sources that stop a minute in place of seconds: the machine may be busy.
func readToTheEnd(t *testing.T) {
	t.Helper()
	patience := finishPatience
	finishPatience = time.Minute
	t.Cleanup(func() { finishPatience = patience })
}

// Connections beyond the share of the peers wait, which the verdict says, and are read when others
// leave, or when the source stops.
func TestPeersBeyondTheirShareWait(t *testing.T) {
	readToTheEnd(t)
	g := start(t, t.TempDir(), nil, all("a", 64))
	g.allotted.mu.Lock()
	g.allotted.most = 1
	g.allotted.mu.Unlock()
	const conns = 20
	var open [conns]net.Conn
	for i := range open {
		open[i] = dialFrom(t, i+1, address(g, "a"))
		defer open[i].Close()
		write(t, open[i], of(uint32(i), 0, 10))
	}
	watched := func() bool {
		for _, r := range g.Sheet().Verdict.Reasons {
			if r.Kind == "few_descriptors" && r.Level == ledger.Watch && r.Source == "a" {
				return true
			}
		}
		return false
	}
	seen := func() (n uint64) {
		f, _, _ := total(t, g.Sheet(), "a")
		return f.OK
	}
	testenv.Until(t, time.Minute, "two are read, and the others wait", func() bool { return seen() == 20 && watched() })
	used := func() int {
		g.allotted.mu.Lock()
		defer g.allotted.mu.Unlock()
		return g.allotted.used
	}
	if n := used(); n != 1 {
		t.Errorf("%d places are taken", n)
	}
	open[0].Close()
	open[1].Close()
	testenv.Until(t, time.Minute, "the next two are read", func() bool { return seen() == 40 })
	f, _, unread := total(t, stop(t, g), "a")
	if f.OK != conns*10 || f.Stored != conns*10 || unread != 0 {
		t.Errorf("%d frames are read, %d stored, %d bytes unread; want %d", f.OK, f.Stored, unread, conns*10)
	}
	if n := used(); n != 0 {
		t.Errorf("%d places are taken behind the stop", n)
	}
}

// A source that stops with few descriptors left takes what waits in turn, and loses nothing of what
// the kernel has acknowledged.
func TestStopTakesInTurnWhatWaits(t *testing.T) {
	readToTheEnd(t)
	for name, source := range map[string]config.Source{"first": tcp("a"), "all": all("a", 64)} {
		t.Run(name, func(t *testing.T) {
			g := start(t, t.TempDir(), nil, source)
			g.allotted.mu.Lock()
			g.allotted.most = 0
			g.allotted.mu.Unlock()
			const conns = 100
			c := dialFrom(t, 1, address(g, "a"))
			defer c.Close()
			write(t, c, of(1, 0, 10))
			testenv.Until(t, time.Minute, "the first is read",
				func() bool { f, _, _ := total(t, g.Sheet(), "a"); return f.Stored == 10 })
			for i := range conns {
				c := dialFrom(t, 2+i%50, address(g, "a"))
				write(t, c, of(uint32(2+i%50), uint64(i/50)*10, 10))
				c.Close()
			}
			takeDescriptors(t, 4)
			s := stop(t, g)
			f, _, unread := total(t, s, "a")
			if want := uint64(conns+1) * 10; f.OK != want || f.Stored != want || f.Missing != 0 || unread != 0 ||
				len(s.Ports[0].Refused) > 0 {
				t.Errorf("%d frames are read, %d stored, %d missing, %d bytes unread, refused %v; want %d", f.OK,
					f.Stored, f.Missing, unread, s.Ports[0].Refused, want)
			}
		})
	}
}

// Without any descriptor a stop ends all the same, and counts what it could not take.
func TestStopWithoutDescriptorsEnds(t *testing.T) {
	l := newListener("127.0.0.1:0", "")
	for range 3 {
		c := dial(t, l.l.Addr().String())
		defer c.Close()
	}
	testenv.Until(t, time.Minute, "one waits", l.waits)
	takeDescriptors(t, 0)
	rest, more, err := l.close(false)
	if len(rest) > 0 || !more || err != nil {
		t.Errorf("the first look brings %v, %v, %v", rest, more, err)
	}
	rest, more, err = l.close(true)
	var left *untaken
	if len(rest) > 0 || more || !errors.As(err, &left) || left.connections != 3 {
		t.Errorf("the last look brings %v, %v, %v", rest, more, err)
	}
}
