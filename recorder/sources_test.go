package recorder

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

func TestConnectionsComeAndGo(t *testing.T) {
	for _, strategy := range strategies {
		g := start(t, t.TempDir(), func(c *config.Config) { c.Read.Strategy = strategy }, tcp("a"))
		addr := address(g, "a")
		c := dial(t, addr)
		write(t, c, frames(0, 10))
		stored(t, g, "a", 10)
		c2 := dial(t, addr) // a device that connects again takes over
		write(t, c2, frames(10, 5)[:5*128-20])
		stored(t, g, "a", 14)
		c2.Close()
		c3 := dial(t, addr)
		write(t, c3, frames(16, 4))
		stored(t, g, "a", 18)
		c.Close()
		c3.Close()
		testenv.Until(t, 10*time.Second, "the end is noticed",
			func() bool { return portOf(g, "a").State == ledger.StateWaiting })
		p := stop(t, g).Ports[0]
		f := p.Frames
		if f.OK != 18 || f.Missing != 2 || f.MissingCorrupt != 1 || p.Bytes.Resync != 108 {
			t.Errorf("%s: %+v %+v; want 18 frames, 2 missing, 1 of them cut in the middle", strategy, p.Bytes, f)
		}
	}
}

func TestDatagrams(t *testing.T) {
	free, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.LocalAddr().String()
	free.Close()
	g := start(t, t.TempDir(), nil,
		config.Source{ID: "u", UDP: &config.Net{Listen: addr}, Frame: config.Frame{Kind: "line"}})
	c, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	testenv.Until(t, 10*time.Second, "the socket is open",
		func() bool { return portOf(g, "u").State == ledger.StateOpen })
	for _, s := range []string{"one\ntwo", "three", "$GPGLL*00", "", "four\n"} {
		write(t, c, []byte(s))
	}
	stored(t, g, "u", 4)
	p := stop(t, g).Ports[0]
	if p.Frames.OK != 4 || p.Frames.Corrupt != 1 || p.Bytes.Resync != 9 || p.Kernel == nil ||
		*p.Kernel.BufferOverrun != 0 {
		t.Errorf("%+v %+v %+v; want 4 lines, a datagram ending one, and a wrong checksum", p.Bytes, p.Frames, p.Kernel)
	}
}

// A port that vanishes and comes back behind the same link under another device name goes on being
// read.
func TestPortReturnsUnderAnotherName(t *testing.T) {
	dir := t.TempDir()
	port, err := serialtest.NewPort(filepath.Join(dir, "line"))
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	g := start(t, dir, nil, config.Source{
		ID: "s", Serial: &config.Serial{Port: port.Link},
		Frame: config.Frame{Kind: "tally128"},
	})
	write(t, port, frames(0, 20))
	stored(t, g, "s", 20)
	if err := port.Unplug(); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, 10*time.Second, "the port is missed",
		func() bool { return portOf(g, "s").State == ledger.StateWaiting })
	if err := port.Plug(); err != nil {
		t.Fatal(err)
	}
	write(t, port, frames(23, 20))
	stored(t, g, "s", 40)
	p := stop(t, g).Ports[0]
	if p.OutageCount != 1 || p.Outages[0].To == 0 || p.Frames.MissingUnseen != 3 {
		t.Errorf("outages %+v, %+v; want one that is over, and 3 unseen", p.Outages, p.Frames)
	}
}

// noise is a lot of random bytes.
func noise(t *testing.T, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestNoiseIsQuarantinedAndHarmsNothing(t *testing.T) {
	dir := t.TempDir()
	s := tcp("n")
	s.Quarantine = true
	g := start(t, dir, nil, s)
	c := dial(t, address(g, "n"))
	junk := noise(t, 100_000)
	write(t, c, frames(0, 3))
	write(t, c, junk)
	write(t, c, frames(3, 3))
	c.Close()
	stored(t, g, "n", 6)
	p := stop(t, g).Ports[0]
	if p.Frames.Missing != 0 || p.Bytes.Resync != 100_000 || p.Bytes.Quarantined != 100_000 {
		t.Errorf("%+v %+v; want nothing missing and all noise classified and kept", p.Bytes, p.Frames)
	}
	var got []byte
	eachRecord(t, dir, archive.Query{Quarantine: true}, func(r archive.Record) {
		if want := uint64(3*tally128.Size + len(got)); *r.Offset != want {
			t.Fatalf("quarantined bytes at %d, want %d", *r.Offset, want)
		}
		got = append(got, r.Data...)
	})
	if !bytes.Equal(got, junk) {
		t.Errorf("quarantine has %d bytes that differ from the %d sent", len(got), len(junk))
	}
}

func eachRecord(t *testing.T, dir string, q archive.Query, f func(archive.Record)) {
	t.Helper()
	a, err := archive.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := a.Records(archive.Cursor{Query: q})
	defer c.Close()
	for {
		r, ok, err := c.Look()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			f(r)
		}
	}
}

// A flood of noise is classified to the last byte, and the frame behind it is found.
func TestFloodOfNoise(t *testing.T) {
	g := start(t, t.TempDir(), nil, tcp("n"))
	c := dial(t, address(g, "n"))
	junk, total := noise(t, 1<<20), 0
	write(t, c, frames(0, 1))
	for range 64 {
		write(t, c, junk)
		total += len(junk)
	}
	write(t, c, frames(1, 1))
	c.Close()
	stored(t, g, "n", 2)
	p := stop(t, g).Ports[0]
	if p.Frames.OK < 2 || p.Bytes.Resync+p.Bytes.Framed != uint64(total)+256 {
		t.Errorf("%+v %+v; want %d bytes classified", p.Bytes, p.Frames, total+256)
	}
}

// A connection that is taken the moment it is offered must not be ended by its own signal.
func TestConnectionIsNotReplacedByItself(t *testing.T) {
	l := newListener("127.0.0.1:0", config.PeersNewest)
	defer l.close(true)
	for range 2000 {
		c := dial(t, l.l.Addr().String())
		d, err := l.open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			runtime.Gosched()
			select {
			case <-l.replaced():
				t.Fatal("a newer connection is announced, and there is none")
			default:
			}
		}
		if err := errors.Join(d.close(), c.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// Two sources that are one device under two names are told of at start and by a reload, with both
// names. One reads all of it; the other one says who has it.
func TestTwoNamesOfOneDevice(t *testing.T) {
	dir := t.TempDir()
	link, other := filepath.Join(dir, "by-id"), filepath.Join(dir, "by-path")
	v, err := serialtest.NewPort(link)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	tty, err := filepath.EvalSymlinks(link)
	if err == nil {
		err = os.Symlink(tty, other)
	}
	if err != nil {
		t.Fatal(err)
	}
	source := func(id, port string) config.Source {
		return config.Source{ID: id, Serial: &config.Serial{Port: port}, Frame: config.Frame{Kind: "line"}}
	}
	var said testenv.Buffer
	cfg := config.Config{
		Log: config.Log{Dir: t.TempDir(), Segment: 1 << 20, Delay: time.Millisecond}, API: config.API{Listen: "off"},
		Sources: []config.Source{source("a", link), source("b", other)},
	}
	g, err := Start(cfg, slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, g)
	both := func(times int) bool {
		return strings.Count(said.String(), "two sources are one device") == times &&
			strings.Contains(said.String(), link) &&
			strings.Contains(said.String(), other)
	}
	if !both(1) {
		t.Errorf("the start says %s", &said)
	}
	var has, lacks string
	testenv.Until(t, time.Minute, "one has it and the other says so", func() bool {
		has, lacks = "a", "b"
		if portOf(g, "b").State == ledger.StateOpen {
			has, lacks = "b", "a"
		}
		return portOf(g, has).State == ledger.StateOpen && strings.Contains(portOf(g, lacks).Why, "open here as "+dir)
	})
	for n := range 100 {
		if _, err := fmt.Fprintf(v, "%d\n", n); err != nil {
			t.Fatal(err)
		}
	}
	stored(t, g, has, 100)
	if p := portOf(g, lacks); p.Bytes.Read != 0 {
		t.Errorf("the other one has read %d bytes", p.Bytes.Read)
	}
	next := g.Config()
	next.Sources[1].Overflow = config.OverflowNewest
	if err := g.Reload(next); err != nil || !both(2) {
		t.Errorf("the reload: %v; it says %s", err, &said)
	}
}
