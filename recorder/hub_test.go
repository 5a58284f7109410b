package recorder

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// all is a source that reads every connection, for devices at 127.0.0.0/8.
func all(id string, most int) config.Source {
	return config.Source{
		ID: id, TCP: &config.Net{Listen: "127.0.0.1:0", Peers: config.PeersAll, MaxPeers: most},
		Frame: config.Frame{Kind: "tally128"},
	}
}

// dialFrom connects from one of the addresses of this machine: 127.0.0.n.
func dialFrom(t *testing.T, n int, addr string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(n))}}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func peer(source string, n int) string { return fmt.Sprintf("%s/127.0.0.%d", source, n) }

// of makes frames of one device.
func of(device uint32, from, n uint64) []byte {
	b := make([]byte, n*tally128.Size)
	for i := range n {
		tally128.Encode(b[i*tally128.Size:], tally128.Header{Device: device, Epoch: 1, Seq: from + i}, nil)
	}
	return b
}

// total adds up what the books of a source and of its peers say, all of which must balance.
func total(t *testing.T, s ledger.Sheet, source string) (f ledger.Frames, read, unread uint64) {
	t.Helper()
	for _, p := range s.Ports {
		if !archive.Within(p.ID, source) {
			continue
		}
		if len(p.Unbalanced) > 0 {
			t.Errorf("%s: %v", p.ID, p.Unbalanced)
		}
		f.OK += p.Frames.OK
		f.Stored += p.Frames.Stored
		f.Durable += p.Frames.Durable
		f.Missing += p.Frames.Missing
		f.Duplicate += p.Frames.Duplicate
		f.Corrupt += p.Frames.Corrupt
		f.InFlight += p.Frames.InFlight
		read += p.Bytes.Read
		for _, n := range p.Unread {
			unread += n
		}
	}
	return f, read, unread
}

func storedInAll(t *testing.T, g *Recorder, source string, n uint64) {
	t.Helper()
	testenv.Until(t, 20*time.Second, fmt.Sprintf("%d frames of all of %s stored", n, source), func() bool {
		f, _, _ := total(t, g.Sheet(), source)
		return f.Stored >= n
	})
}

// Twenty devices send at the same time, in pieces that are no frames: no byte of one comes among
// those of another.
func TestPeersAllKeepsDevicesApart(t *testing.T) {
	for _, strategy := range strategies {
		dir := t.TempDir()
		g := start(t, dir, func(c *config.Config) { c.Read.Strategy = strategy }, all("plant", 64))
		addr := address(g, "plant")
		var senders sync.WaitGroup
		for d := 1; d <= 20; d++ {
			c := dialFrom(t, d, addr)
			senders.Go(func() {
				defer c.Close()
				rng := rand.New(rand.NewPCG(uint64(d), 1))
				for rest := of(uint32(d), 0, 200); len(rest) > 0; {
					n, err := c.Write(rest[:min(len(rest), 1+rng.IntN(300))])
					if err != nil {
						t.Error(err)
						return
					}
					rest = rest[n:]
				}
			})
		}
		senders.Wait()
		storedInAll(t, g, "plant", 20*200)
		s := stop(t, g)
		for d := 1; d <= 20; d++ {
			p := portIn(s, peer("plant", d))
			if f := p.Frames; f.OK != 200 || f.Missing != 0 || f.Durable != 200 || p.Bytes.Resync != 0 ||
				p.Bytes.Read != 200*tally128.Size {
				t.Errorf("%s: device %d: %+v %+v", strategy, d, p.Bytes, p.Frames)
			}
		}
		counts := map[string]int{}
		eachRecord(t, dir, archive.Query{Source: "plant"}, func(r archive.Record) {
			if r.Source != peer("plant", int(*r.Device)) {
				t.Fatalf("a frame of device %d is of %s", *r.Device, r.Source)
			}
			counts[r.Source]++
		})
		one := 0
		eachRecord(t, dir, archive.Query{Source: peer("plant", 2)}, func(archive.Record) { one++ })
		if len(counts) != 20 || one != 200 {
			t.Errorf("%s: the source has records of %d peers, one peer %d", strategy, len(counts), one)
		}
	}
}

func portIn(s ledger.Sheet, id string) ledger.Port {
	for _, p := range s.Ports {
		if p.ID == id {
			return p
		}
	}
	return ledger.Port{}
}

// Devices that connect anew all the time go on in their own books, in order.
func TestPeersAllReconnectStorm(t *testing.T) {
	g := start(t, t.TempDir(), nil, all("plant", 8))
	addr := address(g, "plant")
	var senders sync.WaitGroup
	for d := 1; d <= 4; d++ {
		senders.Go(func() {
			for i := range uint64(100) {
				c := dialFrom(t, d, addr)
				if _, err := c.Write(of(uint32(d), i*20, 20)); err != nil {
					t.Error(err)
				}
				c.Close()
			}
		})
	}
	senders.Wait()
	storedInAll(t, g, "plant", 4*2000)
	s := stop(t, g)
	if len(s.Ports) != 5 {
		t.Errorf("%d books, want those of the source and of 4 peers", len(s.Ports))
	}
	for d := 1; d <= 4; d++ {
		if f := portIn(s, peer("plant", d)).Frames; f.OK != 2000 || f.Missing != 0 || f.Duplicate != 0 ||
			f.Reordered != 0 {
			t.Errorf("device %d: %+v", d, f)
		}
	}
}

// behindOne has devices come to the source plant from one address: each sends ten frames, which the
// lane with that name stores; and go.
func behindOne(t *testing.T, g *Recorder) (connect func(device uint32, from uint64, id string) net.Conn,
	gone func(id string, c net.Conn),
) {
	addr := address(g, "plant")
	connect = func(device uint32, from uint64, id string) net.Conn {
		before := portOf(g, id).Frames.Stored
		c := dialFrom(t, 1, addr)
		write(t, c, of(device, from, 10))
		stored(t, g, id, before+10)
		return c
	}
	gone = func(id string, c net.Conn) {
		c.Close()
		testenv.Until(t, 10*time.Second, id+" is gone",
			func() bool { return portOf(g, id).State == ledger.StateWaiting })
	}
	return connect, gone
}

// Two devices behind one address are read side by side; when they come back in the other order
// nothing is called lost that was not, and what was lost is.
func TestPeersAllBehindOneAddress(t *testing.T) {
	g := start(t, t.TempDir(), nil, all("plant", 8))
	first, second := peer("plant", 1), peer("plant", 1)+"/2"
	connect, gone := behindOne(t, g)
	a := connect(1, 0, first)
	b := connect(2, 0, second)
	gone(first, a)
	gone(second, b)
	b = connect(2, 10, first)
	a = connect(1, 13, second) // 3 were lost
	gone(first, b)
	gone(second, a)
	a = connect(1, 23, first)
	b = connect(2, 20, second)
	defer a.Close()
	defer b.Close()
	f, _, _ := total(t, stop(t, g), "plant")
	if f.OK != 60 || f.Missing != 3 || f.Duplicate != 0 {
		t.Errorf("%+v; want 60 frames and 3 missing", f)
	}
}

// Devices behind one address take turns in its lanes after the last sheet of a start that is
// killed: what was lost is named, and nothing else is.
func TestPeersAllKilledBetweenTurns(t *testing.T) {
	dir := t.TempDir()
	g := start(t, dir, nil, all("plant", 8))
	first, second := peer("plant", 1), peer("plant", 1)+"/2"
	connect, gone := behindOne(t, g)
	a, b := connect(1, 0, first), connect(2, 0, second)
	if err := g.save(); err != nil {
		t.Fatal(err)
	}
	sheets := copyFolder(t, dir)
	gone(first, a)
	gone(second, b)
	b = connect(2, 10, first)
	a = connect(1, 13, second) // 3 were lost
	gone(first, b)
	gone(second, a)
	a = connect(1, 23, first)
	b = connect(2, 18, second) // 18 and 19 come again
	if err := g.log.Sync(); err != nil {
		t.Fatal(err)
	}
	killed := copyFolder(t, dir)
	for _, name := range []string{"sheet.json", "sheet.json.before"} { // no second has passed since
		_ = os.Remove(filepath.Join(killed, name))
		if kept, err := os.ReadFile(filepath.Join(sheets, name)); err == nil {
			if err := os.WriteFile(filepath.Join(killed, name), kept, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	a.Close()
	b.Close()
	stop(t, g)
	stop(t, start(t, killed, nil, all("plant", 8)))
	starts := past(t, killed)
	sheet := starts[len(starts)-2].Sheet
	if f, _, _ := total(t, sheet, "plant"); f.Missing != 3 {
		t.Errorf("%+v; want 3 missing", f)
	}
}

// More addresses than may have books: one that is gone makes room, and its counts stay with the
// source; while all are there a further one is refused, and counted.
func TestMaxPeers(t *testing.T) {
	dir := t.TempDir()
	g := start(t, dir, nil, all("plant", 2))
	addr := address(g, "plant")
	quit, looked := make(chan struct{}), make(chan struct{})
	go func() { // whoever looks while books are absorbed sees no frame twice, and none vanish
		defer close(looked)
		for last := uint64(0); ; {
			f, _, _ := total(t, g.Sheet(), "plant")
			if f.OK < last || f.OK > 150 {
				t.Errorf("%d frames after %d", f.OK, last)
				return
			}
			last = f.OK
			select {
			case <-quit:
				return
			default:
			}
		}
	}()
	for round := range uint64(3) {
		for d := 1; d <= 5; d++ {
			c := dialFrom(t, d, addr)
			write(t, c, of(uint32(d), 11*round, 10)) // one is lost between the rounds
			c.Close()
			storedInAll(t, g, "plant", (5*round+uint64(d))*10)
		}
	}
	close(quit)
	<-looked
	s := g.Sheet()
	if f, read, _ := total(t, s, "plant"); len(s.Ports) != 3 || f.OK != 150 || f.Missing != 10 || f.Duplicate != 0 ||
		read != 150*tally128.Size {
		t.Errorf("%d books, %+v, %d bytes; want 3 books, 150 frames and 10 missing", len(s.Ports), f, read)
	}
	here := []net.Conn{dialFrom(t, 6, addr), dialFrom(t, 7, addr)}
	for i, c := range here {
		defer c.Close()
		write(t, c, of(uint32(6+i), 0, 1))
		stored(t, g, peer("plant", 6+i), 1)
	}
	c := dialFrom(t, 8, addr)
	defer c.Close()
	write(t, c, of(8, 0, 3))
	testenv.Until(t, 10*time.Second, "one is refused",
		func() bool { return portOf(g, "plant").Refused[refusedPeers] == 1 })
	_, _ = io.Copy(io.Discard, c) // it is ended, in order or not
	s = stop(t, g)
	p := portIn(s, "plant")
	if p.Refused[refusedPeers] != 1 || p.Unread[unreadRefused] != 3*tally128.Size {
		t.Errorf("refused %v, unread %v", p.Refused, p.Unread)
	}
	if f, _, _ := total(t, s, "plant"); f.OK != 152 || f.Durable != 152 {
		t.Errorf("%+v; want 152 frames, all durable", f)
	}
	if v := s.Verdict; v.Level != ledger.Bad || v.LostHere.Bytes != 3*tally128.Size {
		t.Errorf("the verdict over a refused sender: %+v", v)
	}
}

// A log knows so many addresses and no more.
func TestPeersAllBoundsAddresses(t *testing.T) {
	before := maxAddresses
	maxAddresses = 3
	defer func() { maxAddresses = before }()
	g := start(t, t.TempDir(), nil, all("plant", 2))
	addr := address(g, "plant")
	for d := 1; d <= 3; d++ {
		c := dialFrom(t, d, addr)
		write(t, c, of(uint32(d), 0, 1))
		c.Close()
		storedInAll(t, g, "plant", uint64(d))
	}
	c := dialFrom(t, 4, addr)
	defer c.Close()
	testenv.Until(t, 10*time.Second, "one is refused",
		func() bool { return portOf(g, "plant").Refused[refusedAddresses] == 1 })
	known := dialFrom(t, 1, addr)
	defer known.Close()
	write(t, known, of(1, 1, 1))
	storedInAll(t, g, "plant", 4)
	stop(t, g)
}

// Peers go on with their numbers after a restart, also those whose books were absorbed.
func TestPeersAllRestart(t *testing.T) {
	dir := t.TempDir()
	for round := range uint64(3) {
		g := start(t, dir, nil, all("plant", 2))
		addr := address(g, "plant")
		for d := 1; d <= 4; d++ {
			c := dialFrom(t, d, addr)
			write(t, c, of(uint32(d), 12*round, 10))
			c.Close()
			storedInAll(t, g, "plant", uint64(d)*10)
		}
		f, _, _ := total(t, stop(t, g), "plant")
		want := uint64(8)
		if round == 0 {
			want = 0
		}
		if f.OK != 40 || f.Missing != want || f.Duplicate != 0 {
			t.Errorf("round %d: %+v; want 40 frames and %d missing", round, f, want)
		}
	}
}

// Senders that never stop are cut at one byte each: what their kernels were told had arrived is in
// the books, by a stop, by a change that opens the source anew, and when it is taken out.
func TestPeersAllUnderLoadLosesNothingAcknowledged(t *testing.T) {
	for name, end := range map[string]func(g *Recorder){
		"stop": func(*Recorder) {},
		"changed": func(g *Recorder) {
			change(t, g,
				func(s *config.Source) { s.TCP = &config.Net{Listen: "127.0.0.1:0", Peers: config.PeersNewest} })
		},
		"taken out": func(g *Recorder) {
			next := g.cfg
			next.Sources = nil
			if err := g.Reload(next); err != nil {
				t.Error(err)
			}
		},
	} {
		dir := t.TempDir()
		g := start(t, dir, nil, all("plant", 8))
		addr := address(g, "plant")
		var conns []net.Conn
		var senders sync.WaitGroup
		for d := 1; d <= 5; d++ {
			c := dialFrom(t, d, addr)
			defer c.Close()
			conns = append(conns, c)
			senders.Go(func() {
				for i := uint64(0); ; i++ {
					if _, err := c.Write(of(uint32(d), i, 1)); err != nil {
						return
					}
				}
			})
		}
		storedInAll(t, g, "plant", 1000)
		end(g)
		sheets := []ledger.Sheet{stop(t, g)}
		for _, c := range conns { // one whose window was closed does not hear of the end for a while
			if err := c.SetWriteDeadline(time.Unix(1, 0)); err != nil {
				t.Error(err)
			}
		}
		senders.Wait()
		var acked, got uint64
		for _, c := range conns {
			acked += acknowledged(t, c)
		}
		if name != "stop" {
			sheets = nil // the last in the history is that of the whole start
			for _, s := range past(t, dir) {
				sheets = append(sheets, s.Sheet)
			}
		}
		for _, s := range sheets {
			f, read, unread := total(t, s, "plant")
			if got += read + unread; f.InFlight != 0 || f.Missing != 0 {
				t.Errorf("%s: %+v", name, f)
			}
		}
		if got < acked || acked == 0 {
			t.Errorf("%s: %d bytes acknowledged, the books name %d", name, acked, got)
		}
	}
}

// A device whose old connection nobody has ended yet is read again within a second, and its numbers
// go on.
func TestPeersAllHalfOpen(t *testing.T) {
	g := start(t, t.TempDir(), nil, all("plant", 8))
	addr := address(g, "plant")
	old := dialFrom(t, 1, addr)
	defer old.Close()
	write(t, old, of(1, 0, 10))
	stored(t, g, peer("plant", 1), 10)
	c := dialFrom(t, 1, addr)
	write(t, c, of(1, 12, 10))
	stored(t, g, peer("plant", 1)+"/2", 10)
	var listed []string
	for _, p := range g.Ports() {
		listed = append(listed, p.ID+" "+p.State+" "+p.Device)
	}
	want := []string{
		"plant open ", peer("plant", 1) + " open " + old.LocalAddr().String(),
		peer("plant", 1) + "/2 open " + c.LocalAddr().String(),
	}
	if !slices.Equal(listed, want) {
		t.Errorf("ports are %q, want %q", listed, want)
	}
	c.Close()
	old.Close()
	testenv.Until(t, 10*time.Second, "both are gone", func() bool {
		return portOf(g, peer("plant", 1)).State == ledger.StateWaiting &&
			portOf(g, peer("plant", 1)+"/2").State == ledger.StateWaiting
	})
	c = dialFrom(t, 1, addr)
	defer c.Close()
	write(t, c, of(1, 22, 10))
	stored(t, g, peer("plant", 1), 20)
	if f, _, _ := total(t, stop(t, g), "plant"); f.OK != 30 || f.Missing != 2 || f.Duplicate != 0 {
		t.Errorf("%+v; want 30 frames and 2 missing", f)
	}
}

// What waits in every socket when the stop comes is read first: of connections that are read, and
// of those that nobody has taken.
func TestPeersAllStopReadsWhatWaits(t *testing.T) {
	for _, strategy := range strategies {
		g := start(t, t.TempDir(), func(c *config.Config) { c.Read.Strategy = strategy }, all("plant", 40))
		addr := address(g, "plant")
		sent := uint64(0)
		for i := range 30 {
			c := dialFrom(t, 1+i%20, addr)
			write(t, c, of(uint32(1+i%20), uint64(i/20)*40, 40))
			defer c.Close()
			sent += 40
		}
		s := stop(t, g)
		f, read, unread := total(t, s, "plant")
		if f.OK != sent || f.Durable != sent || f.Missing != 0 || unread != 0 || read != sent*tally128.Size {
			t.Errorf("%s: %+v, %d read, %d unread; want %d frames", strategy, f, read, unread, sent)
		}
	}
}

// What a peer had stored, and nobody knew to be durable when its books were absorbed, is durable in
// those of its source.
func TestFoldedFramesBecomeDurable(t *testing.T) {
	source, log := testLane(t, config.OverflowBlock)
	for range 2 {
		gone, _ := testLane(t, config.OverflowBlock)
		gone.out.log = log
		gone.Arrived(frames(0, 5), 5*tally128.Size, 1)
		gone.settle(seglog.Commit{Stored: log.seq, Durable: 2}, 2)
		source.absorb(gone)
	}
	if f := balanced(t, source); f.Stored != 10 || f.Durable != 2 {
		t.Errorf("%+v; want 10 stored, and 2 durable", f)
	}
	source.settle(seglog.Commit{Stored: 10, Durable: 7}, 3)
	source.settle(seglog.Commit{Stored: 10, Durable: 10}, 4)
	if f := balanced(t, source); f.Durable != 10 {
		t.Errorf("%+v; want 10 durable", f)
	}
}
