package forward

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// rounds is how often TestCluster does each thing to a server of three:
//
//	go test ./forward -run TestCluster -rounds 5 -timeout 1h
var rounds = flag.Int("rounds", 0, "TestCluster: how often each is done; 0: only one server is set back, once")

// cluster is three servers in processes of their own. Each reaches the others through gates.
type cluster struct {
	t      *testing.T
	dir    string
	nodes  [3]*child
	stores [3]string
	urls   []string
	gates  [3][3]*gate // from one to the other
	small  bool        // the first one has a small disk of its own
	w      *world      // whose frames they take
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir()}
	var ports, routes [3]int
	for i := range ports {
		ports[i], routes[i] = freePort(t), freePort(t)
		c.stores[i] = filepath.Join(c.dir, "n"+strconv.Itoa(i))
		c.urls = append(c.urls, fmt.Sprintf("nats://127.0.0.1:%d", ports[i]))
	}
	for i := range ports {
		r := role{Port: ports[i], Dir: c.stores[i], Name: "n" + strconv.Itoa(i), Route: routes[i], Log: c.log(i)}
		for j := range ports {
			if i != j {
				c.gates[i][j] = newGate(t, fmt.Sprintf("127.0.0.1:%d", routes[j]))
				r.Routes = append(r.Routes, "nats://"+c.gates[i][j].l.Addr().String())
			}
		}
		c.nodes[i] = &child{name: r.Name, start: func() *exec.Cmd { return r.command(t) }}
	}
	t.Cleanup(func() {
		for i := range c.nodes {
			if c.nodes[i].cmd != nil {
				c.nodes[i].kill()
			}
			if b, _ := os.ReadFile(c.log(i)); t.Failed() {
				t.Logf("n%d said, at the end:\n%s", i, b[max(0, len(b)-30000):])
			}
		}
	})
	return c
}

func (c *cluster) log(i int) string { return filepath.Join(c.dir, "log"+strconv.Itoa(i)) }

// cut opens or shuts all ways between a server and the others.
func (c *cluster) cut(node int, shut bool) {
	for other := range c.nodes {
		if other != node {
			c.gates[node][other].set(shut)
			c.gates[other][node].set(shut)
		}
	}
}

// stream asks for the state of the stream; nil: nobody can say.
func (c *cluster) stream(url string) *jetstream.StreamInfo {
	nc, err := nats.Connect(url)
	if err != nil {
		return nil
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	s, err := js.Stream(ctx, "TALLYWHEEL")
	if err != nil || s.CachedInfo().Cluster == nil {
		return nil
	}
	return s.CachedInfo()
}

// whole waits until all three have everything of the stream, and returns which one leads.
func (c *cluster) whole() (leader int) {
	c.t.Helper()
	testenv.Until(c.t, 3*time.Minute, "all three have the stream", func() bool {
		for _, url := range c.urls {
			i := c.stream(url)
			if i == nil || len(i.Cluster.Replicas) != 2 || i.Cluster.Leader == "" {
				return false
			}
			for _, peer := range i.Cluster.Replicas {
				if !peer.Current || peer.Offline {
					return false
				}
			}
			leader, _ = strconv.Atoi(strings.TrimPrefix(i.Cluster.Leader, "n"))
		}
		return true
	})
	return leader
}

// gate passes connections on to an address, as long as it is open.
type gate struct {
	l    net.Listener
	to   string
	busy sync.WaitGroup

	mu   sync.Mutex
	shut bool
	all  map[net.Conn]bool
}

func newGate(t *testing.T, to string) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{l: l, to: to, all: map[net.Conn]bool{}}
	g.busy.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil || !g.add(in, out) {
				_ = in.Close()
				if out != nil {
					_ = out.Close()
				}
				continue
			}
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				g.busy.Go(func() {
					_, _ = io.Copy(way[0], way[1])
					_, _ = way[0].Close(), way[1].Close()
				})
			}
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		g.set(true)
		g.busy.Wait()
	})
	return g
}

func (g *gate) add(conns ...net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range conns {
		g.all[c] = true
	}
	return !g.shut
}

// set shuts it, which ends what has passed, or opens it.
func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut = shut; shut {
		for c := range g.all {
			_ = c.Close()
		}
		clear(g.all)
	}
}

// A cluster of three takes each frame once and in order, while one at a time is killed, gives the
// lead away, is cut off from the others, comes back with files of long ago, or has a full disk.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: a cluster of three processes takes a minute; run without -short")
	}
	c := newCluster(t)
	c.small = c.smallDisk(0)
	for _, n := range c.nodes {
		n.begin(t)
	}
	w := newWorld(t, nil)
	w.cfg.Forward[0].URLs, w.cfg.Forward[0].Replicas, w.cfg.Forward[0].Batch.Frames = c.urls, 3, 0
	w.forward()
	c.w = w
	ctx, end := context.WithCancel(t.Context())
	var adding sync.WaitGroup
	adding.Go(func() {
		for tick := time.NewTicker(5 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			w.add(5, "a", "b")
		}
	})
	defer adding.Wait()
	defer end()
	c.progress("frames are forwarded")
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	if *rounds == 0 {
		c.setBack()
	}
	for range *rounds {
		leader := c.whole()
		c.kill(leader)
		c.kill((leader + 1 + rng.IntN(2)) % 3)
		c.stepDown()
		c.partition()
		c.setBack()
		c.fill()
	}
	end()
	adding.Wait()
	w.caughtUp()
	want := logged(t, w.dir)
	for _, url := range c.urls {
		same(t, consumed(t, url, "TALLYWHEEL"), want)
	}
	if b := w.book(); b.Gone != 0 {
		t.Errorf("%d records are gone", b.Gone)
	}
}

// progress waits until more frames are acknowledged.
func (c *cluster) progress(what string) {
	c.t.Helper()
	before := c.w.book().Through
	testenv.Until(c.t, 3*time.Minute, what, func() bool { return c.w.book().Through > before+200 })
	c.t.Logf("%s: %d", what, c.w.book().Through)
}

// kill has one server miss something.
func (c *cluster) kill(node int) {
	c.nodes[node].kill()
	c.progress("two of three go on")
	c.nodes[node].begin(c.t)
	c.whole()
}

// partition cuts the leader off from the others; whoever forwards reaches all three.
func (c *cluster) partition() {
	leader := c.whole()
	c.cut(leader, true)
	c.progress("the leader is cut off")
	c.cut(leader, false)
	c.whole()
}

// setBack has the leader come back with files that it had before others led.
func (c *cluster) setBack() {
	c.t.Helper()
	node, old := c.whole(), filepath.Join(c.dir, "old")
	c.nodes[node].kill()
	err := os.CopyFS(old, os.DirFS(c.stores[node]))
	c.nodes[node].begin(c.t)
	c.progress("it is there again")
	c.whole()
	c.nodes[node].kill()
	c.progress("it has missed something")
	if err = errors.Join(err, emptied(c.stores[node]), os.CopyFS(c.stores[node], os.DirFS(old)),
		os.RemoveAll(old)); err != nil {
		c.t.Fatal(err)
	}
	c.nodes[node].begin(c.t)
	c.progress("it was set back")
	c.whole()
}

// fill fills the small disk, and gives it room again.
func (c *cluster) fill() {
	c.t.Helper()
	if !c.small {
		return
	}
	filler := filepath.Join(c.stores[0], "filler")
	if err := os.WriteFile(filler, make([]byte, smallDisk), 0o600); !errors.Is(err, syscall.ENOSPC) {
		c.t.Fatalf("the disk is not full: %v", err)
	}
	c.progress("the disk of one is full")
	c.progress("it is full for long")
	c.nodes[0].kill() // it has ended JetStream by itself
	if err := os.Remove(filler); err != nil {
		c.t.Fatal(err)
	}
	c.nodes[0].begin(c.t)
	c.progress("it has room again")
	c.whole()
}

// stepDown has the leader of the stream give the lead away.
func (c *cluster) stepDown() {
	c.t.Helper()
	nc := connected(c.t, strings.Join(c.urls, ","))
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	_, err := answer(ctx, func(ctx context.Context) (*nats.Msg, error) {
		return nc.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN.TALLYWHEEL", nil)
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.progress("another one leads")
	c.whole()
}

// emptied removes what is in a folder.
func emptied(dir string) error {
	all, err := os.ReadDir(dir)
	for _, e := range all {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

// smallDisk is the size of a small disk, in bytes.
const smallDisk = 64 << 20

// smallDisk gives a server a small disk of its own, where this machine allows that.
func (c *cluster) smallDisk(i int) bool {
	c.t.Helper()
	err := os.Mkdir(c.stores[i], 0o700)
	if err == nil {
		err = syscall.Mount("tmpfs", c.stores[i], "tmpfs", 0, fmt.Sprintf("size=%d", smallDisk))
	}
	if err != nil {
		c.t.Logf("no server has a small disk, for mounting needs root: %v", err)
		return false
	}
	c.t.Cleanup(func() { _ = syscall.Unmount(c.stores[i], syscall.MNT_DETACH) })
	return true
}
