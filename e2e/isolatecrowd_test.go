package e2e

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

const (
	crowdCallers = 40 // from an address each
	crowdPlaces  = 8  // max_peers
	crowdAtOnce  = 3  // who are connected; others that are gone count until the log has their frames
	crowdFrames  = 50 // of a connection
)

var (
	crowdRounds = flag.Int("crowd-rounds", 4, "how often each device of a crowd connects")
	crowdKills  = flag.Int("crowd-kills", 12, "how often the recorder of a crowd is killed, at most")
)

// TestIsolatedCrowd has more devices than a source has places for. Each connects, sends numbered
// frames, closes, and comes again, so that others make room for it all the time, while the recorder
// is killed. Each frame is stored once, the books of the start have all of them, and nothing is
// missing.
func TestIsolatedCrowd(t *testing.T) {
	dir := t.TempDir()
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	r := startIsolated(t, dir, fmt.Sprintf("  - {id: net, tcp: {listen: %q, peers: all, max_peers: %d}, frame: tally128}\n",
		addr, crowdPlaces))
	var callers []*talker
	for i := range crowdCallers {
		callers = append(callers, &talker{id: fmt.Sprintf("net/127.0.0.%d", i+2), device: uint32(i + 1)})
	}
	calls := make(chan *talker)
	var calling sync.WaitGroup
	for range crowdAtOnce {
		calling.Go(func() {
			for k := range calls {
				call(t, k, addr)
			}
		})
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		rng := rand.New(rand.NewPCG(testenv.Seed(t), 2))
		for range *crowdRounds {
			for _, i := range rng.Perm(crowdCallers) {
				calls <- callers[i]
			}
		}
		close(calls)
		calling.Wait()
	}()
	rng, last, kills := rand.New(rand.NewPCG(testenv.Seed(t), 1)), 0, 0
	for done := false; !done && kills < *crowdKills; kills++ {
		p := r.process(t, isolate.Recorder, last)
		last = p.PID
		select {
		case <-over:
			done = true
		case <-time.After(time.Duration(rng.IntN(400)) * time.Millisecond): // the moment of the kill
			if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	select {
	case <-over:
	case <-time.After(2 * time.Minute):
		t.Error("the callers are not through")
		<-over // each ends within a minute or two
	}
	r.process(t, isolate.Recorder, 0)
	s := r.stop(t)
	verifyLog(t, dir)
	var made uint64
	for _, k := range callers {
		made += k.made.Load()
	}
	data := filepath.Join(dir, "data")
	b := allBooks(t, data)
	if n := storedOnce(t, data); n != made || b.stored != made || b.missing+b.unread > 0 {
		t.Errorf("%d frames were sent, %d are in the log; the books: %+v", made, n, b)
	}
	for _, p := range s.Ports {
		if f := p.Frames; len(p.Unbalanced)+len(p.Refused) > 0 || f.Missing+f.Duplicate+f.Corrupt > 0 {
			t.Errorf("%s: %+v, refused %v, unbalanced: %v", p.ID, f, p.Refused, p.Unbalanced)
		}
	}
	t.Logf("%d kills, %d frames", kills, made)
}

// call has a device connect, send what it has, and close. It waits until the other side has read
// all of it.
func call(t *testing.T, k *talker, addr string) {
	k.calls.Lock()
	defer k.calls.Unlock()
	_, host, _ := strings.Cut(k.id, "/")
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	var conn net.Conn
	for end := time.Now().Add(time.Minute); conn == nil; time.Sleep(time.Millisecond) { // its pace
		var err error
		if conn, err = d.Dial("tcp", addr); err != nil && time.Now().After(end) {
			t.Errorf("%s: %v", k.id, err)
			return
		}
	}
	defer conn.Close()
	k.say(t, conn, crowdFrames)
	_ = conn.(*net.TCPConn).CloseWrite()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Errorf("%s: its connection ends with %v", k.id, err)
	}
}
