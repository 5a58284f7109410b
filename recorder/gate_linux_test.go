package recorder

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/sockets"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ipc"
)

// bareGate is a gate at which connections wait that have sent these texts. Its process may open no
// descriptors, so the one that the keeper takes comes without its own.
type bareGate struct {
	*gate
	iso   *isolation
	text  []string
	fd    int             // of the listener
	drops func() []string // ends the keeper, and says what it was told to drop
}

func newBareGate(t *testing.T) *bareGate {
	t.Helper()
	ours, theirs, err := ipc.Pair(ipc.ConnConfig{MaxFiles: 4})
	if err != nil {
		t.Skipf("SKIPPED: no sockets of AF_UNIX: %v; run this where a process may make them", err)
	}
	conn, err := ipc.Inherit(theirs, ipc.ConnConfig{MaxFiles: 4})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	fd, err := sys.SocketOf(l.(*net.TCPListener))
	if err != nil {
		t.Fatal(err)
	}
	i := &isolation{
		link: isolate.NewLink(conn), log: slog.New(slog.DiscardHandler), gates: map[string]*gate{},
		asked: map[string]chan uint64{}, connections: leftConnections{listeners: map[string]leftConnection{
			"a": {source: "a", fd: fd, addr: l.Addr().String()},
		}},
	}
	text := []string{"one", "three", "fourteen"}
	for _, s := range text {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := c.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	taken, waiting := -1, map[string]uint64{}
	said := make(chan []string, 1)
	gates := make(chan *gate, 1)
	go func() { // the keeper: what it takes comes without its descriptor
		var drops []string
		defer func() { said <- drops }()
		var g *gate
		for {
			m, err := ours.Receive()
			if err != nil {
				return
			}
			var word shelfWord
			_ = json.Unmarshal(m.Data, &word)
			switch _ = m.Close(); word.Op {
			case "accept":
				if taken < 0 {
					g = <-gates
					taken, _, _ = sys.Accept(fd)
				}
				g.accepting.Heard(isolate.Entry{Name: isolate.GuestOf("a", 1), Answer: true, Bare: true})
			case "waits":
				if waiting["a@1"] = sockets.Waiting(taken); word.Name == "a" {
					waiting["a"] = uint64(len(strings.Join(text[1:], "")))
				}
				i.hearWaits(isolate.Entry{
					Name: word.Name, Waits: true, Data: []byte(strconv.FormatUint(waiting[word.Name], 10)),
				})
			case "drop":
				drops = append(drops, word.Name)
			}
		}
	}()
	g := i.newGate(config.Source{ID: "a", TCP: &config.Net{Listen: l.Addr().String(), Peers: config.PeersAll}}, nil)
	gates <- g
	testenv.Until(t, time.Minute, "all have come", func() bool { return sys.Backlogged(fd) == len(text)-1 })
	return &bareGate{gate: g, iso: i, text: text, fd: fd, drops: func() []string {
		_ = conn.Close()
		defer func() { _ = sys.CloseFD(taken) }()
		return <-said
	}}
}

// A gate that closes while its process may open no descriptors takes nothing, and tries again. At
// last it counts what waits, also the connection that the keeper has taken for it, and has the
// keeper close that.
func TestGateWithoutDescriptorsCounts(t *testing.T) {
	g := newBareGate(t)
	rest, more, err := g.close(false)
	if len(rest) > 0 || !more || err != nil {
		t.Errorf("the first look brings %v, %v, %v", rest, more, err)
	}
	rest, more, err = g.close(true)
	var left *untaken
	if len(rest) > 0 || more || !errors.As(err, &left) || left.connections != len(g.text) ||
		left.bytes != uint64(len(strings.Join(g.text, ""))) {
		t.Errorf("the last look brings %v, %v, %v with %+v", rest, more, err, left)
	}
	drops := g.drops()
	for _, name := range []string{isolate.GuestOf("a", 1), isolate.ListenerOf("a"), isolate.GateOf("a")} {
		if !slices.Contains(drops, name) {
			t.Errorf("the keeper still has %s: it was told to drop %q", name, drops)
		}
	}
}

// What a recorder that leaves cannot look at, for it may open no descriptors, stays where it is,
// and its number is in the journal.
func TestGuestsThatNobodyCanLookAt(t *testing.T) {
	g := newBareGate(t)
	source, _ := testLane(t, config.OverflowBlock)
	var journal testenv.Buffer
	p, _ := newRemotePort(source, nil, slog.New(slog.NewTextHandler(&journal, nil)))
	r := &Recorder{iso: g.iso, ports: []*port{p}}
	p.opener, p.hub = g.gate, &hub{r: r, p: p, l: g.gate}
	g.accepting.Leave() // as its hub does
	if all := r.guestsWait(); len(all) > 0 {
		t.Errorf("%v bytes wait, and it cannot look at them", all)
	}
	if want := "of_unknown_bytes=" + strconv.Itoa(len(g.text)); !strings.Contains(journal.String(), want) {
		t.Errorf("the journal says %q, want %s", journal.String(), want)
	}
	if n := sys.Backlogged(g.fd); n != len(g.text)-1 {
		t.Errorf("%d connections wait in the kernel, want %d", n, len(g.text)-1)
	}
	if drops := g.drops(); len(drops) > 0 {
		t.Errorf("the keeper was told to drop %q", drops)
	}
}
