package recorder

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// A device connects again while the log takes nothing, and its older connection, which nobody has
// ended, still has frames that nobody has read. They are recorded before those of the newer one,
// and none is called lost, late or stored twice. With peers: all that holds where the two are read
// in books of their own, too.
func TestOlderConnectionIsRecordedFirst(t *testing.T) {
	for _, peers := range []string{config.PeersNewest, config.PeersAll} {
		for _, ends := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, ended %v", peers, ends), func(t *testing.T) { testOlderFirst(t, peers, ends) })
		}
	}
}

func testOlderFirst(t *testing.T, peers string, ends bool) {
	ill, wait := &atomic.Bool{}, make(chan struct{})
	openFiles = func(c config.Log, chains *asyncfile.ChainStats, log *slog.Logger) (seglog.FS, error) {
		fs, err := logFiles(c, chains, log)
		return illDisk{fs, ill, wait}, err
	}
	defer func() { openFiles = logFiles }()
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	dir := t.TempDir()
	s := all("plant", 8)
	if s.Buffer = 64 << 10; peers != config.PeersAll {
		s.TCP.Peers, s.TCP.MaxPeers = peers, 0
	}
	g := start(t, dir, nil, s)
	addr := address(g, "plant")
	ill.Store(true)
	// 1.5 MB and more: what the log, the buffer and the ring hold, and the kernel the rest
	n := uint64(12_000 + rng.IntN(4_000))
	old := dialFrom(t, 1, addr)
	defer old.Close()
	write(t, old, of(1, 0, n))
	testenv.Until(t, 20*time.Second, "the older connection is read", func() bool {
		_, read, _ := total(t, g.Sheet(), "plant")
		return read > 0
	})
	if ends {
		old.Close()
	}
	next := dialFrom(t, 1, addr)
	defer next.Close()
	const more = 500
	sent := make(chan error, 1)
	go func(c net.Conn) {
		_, err := c.Write(of(1, n, more))
		sent <- err
	}(next)
	time.Sleep(takeover + takeover/2) // the time after which a newer connection is read beside an older one
	close(wait)
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	storedInAll(t, g, "plant", n+more)
	sheet := stop(t, g)
	f, _, unread := total(t, sheet, "plant")
	if f.OK != n+more || f.Missing+f.Duplicate+f.Corrupt > 0 || unread > 0 {
		t.Errorf("%+v, %d bytes unread; want %d frames, and none missing", f, unread, n+more)
	}
	at := uint64(0)
	eachRecord(t, dir, archive.Query{Source: "plant"}, func(r archive.Record) {
		if *r.Number != at {
			t.Fatalf("frame %d is recorded where %d is due", *r.Number, at)
		}
		at++
	})
}

// A device connects again while the log takes nothing, and all of its older connection, which
// nobody has ended, is read. The lane that reads the newer one beside it learns the numbers of what
// is in the log once it is there, and misses none of them.
func TestNumbersOfAnOlderConnectionAreLearnt(t *testing.T) {
	ill, wait := &atomic.Bool{}, make(chan struct{})
	openFiles = func(c config.Log, chains *asyncfile.ChainStats, log *slog.Logger) (seglog.FS, error) {
		fs, err := logFiles(c, chains, log)
		return illDisk{fs, ill, wait}, err
	}
	defer func() { openFiles = logFiles }()
	g := start(t, t.TempDir(), nil, all("plant", 8))
	addr := address(g, "plant")
	old := dialFrom(t, 1, addr)
	defer old.Close()
	write(t, old, of(1, 0, 10))
	storedInAll(t, g, "plant", 10)
	ill.Store(true)
	write(t, old, of(1, 10, 1000))
	testenv.Until(t, 20*time.Second, "the older connection is read", func() bool {
		f, _, _ := total(t, g.Sheet(), "plant")
		return f.OK == 1010
	})
	next := dialFrom(t, 1, addr)
	defer next.Close()
	write(t, next, of(1, 1010, 10))
	time.Sleep(takeover + takeover/2) // the time after which it is read beside the older one, but for the log
	close(wait)
	storedInAll(t, g, "plant", 1020)
	if f, _, _ := total(t, stop(t, g), "plant"); f.Stored != 1020 || f.Missing+f.Duplicate > 0 {
		t.Errorf("%+v; want 1020 stored, and none missing", f)
	}
}

// A connection that waits beside an older one when the source stops is read behind that one, in its
// books: a peer of the address that is free knows fewer numbers.
func TestWhatWaitsAtAStopIsReadBehindTheOlderOne(t *testing.T) {
	g := start(t, t.TempDir(), nil, all("plant", 8))
	addr := address(g, "plant")
	first := dialFrom(t, 1, addr)
	defer first.Close()
	write(t, first, of(1, 0, 10))
	storedInAll(t, g, "plant", 10)
	second := dialFrom(t, 1, addr)
	defer second.Close()
	write(t, second, of(1, 10, 10))
	storedInAll(t, g, "plant", 20) // beside the first
	first.Close()
	testenv.Until(t, 20*time.Second, "the first one is gone",
		func() bool { return portOf(g, peer("plant", 1)).State == ledger.StateWaiting })
	write(t, second, of(1, 20, 10))
	storedInAll(t, g, "plant", 30)
	third := dialFrom(t, 1, addr)
	defer third.Close()
	write(t, third, of(1, 30, 10))
	if f, _, _ := total(t, stop(t, g), "plant"); f.Stored != 40 || f.Missing+f.Duplicate > 0 {
		t.Errorf("%+v; want 40 stored, and none missing", f)
	}
}

// Connections of one address that wait for the same one, which nobody has ended, are read in the
// order in which they came: the books of each know the numbers of those before, and miss none.
func TestConnectionsThatWaitTogetherAreReadInOrder(t *testing.T) {
	g := start(t, t.TempDir(), nil, all("plant", 8))
	addr := address(g, "plant")
	const each, connections = 200, 5
	for i := range uint64(connections) {
		c := dialFrom(t, 1, addr)
		defer c.Close()
		write(t, c, of(1, i*each, each))
	}
	storedInAll(t, g, "plant", connections*each)
	if f, _, _ := total(t, stop(t, g), "plant"); f.Stored != connections*each || f.Missing+f.Duplicate > 0 {
		t.Errorf("%+v; want %d stored, and none missing", f, connections*each)
	}
}

// What waits at a stop is read behind the newest connection of its address, also where a peer that
// is listed later reads an older one, or another peer had a newer one that has ended.
func TestWhatWaitsAtAStopKnowsTheNewestConnection(t *testing.T) {
	for _, ends := range []bool{false, true} {
		g := start(t, t.TempDir(), nil, all("plant", 8))
		addr, next := address(g, "plant"), uint64(0)
		connect := func() net.Conn {
			c := dialFrom(t, 1, addr)
			write(t, c, of(1, next, 10))
			next += 10
			return c
		}
		first := connect()
		storedInAll(t, g, "plant", next)
		second := connect()
		defer second.Close()
		storedInAll(t, g, "plant", next) // beside the first
		first.Close()
		testenv.Until(t, 20*time.Second, "the first one is gone",
			func() bool { return portOf(g, peer("plant", 1)).State == ledger.StateWaiting })
		third := connect()
		defer third.Close()
		storedInAll(t, g, "plant", next) // where the first was
		if ends {
			third.Close()
			testenv.Until(t, 20*time.Second, "the third one is gone",
				func() bool { return portOf(g, peer("plant", 1)).State == ledger.StateWaiting })
		}
		defer connect().Close()
		if f, _, _ := total(t, stop(t, g), "plant"); f.Stored != next || f.Missing+f.Duplicate > 0 {
			t.Errorf("ended %v: %+v; want %d stored, and none missing", ends, f, next)
		}
	}
}

// … or the peer that had the newest connection has made room since.
func TestWhatWaitsAtAStopKnowsWhoMadeRoom(t *testing.T) {
	g := start(t, t.TempDir(), nil, all("plant", 2))
	addr, next := address(g, "plant"), uint64(0)
	connect := func() net.Conn {
		c := dialFrom(t, 1, addr)
		write(t, c, of(1, next, 10))
		next += 10
		storedInAll(t, g, "plant", next)
		return c
	}
	defer connect().Close()
	connect().Close() // beside the first, which stays
	other := dialFrom(t, 2, addr)
	defer other.Close()
	write(t, other, of(2, 0, 1)) // has the peer of the second make room
	storedInAll(t, g, "plant", next+1)
	last := dialFrom(t, 1, addr)
	defer last.Close()
	write(t, last, of(1, next, 10))
	if f, _, _ := total(t, stop(t, g), "plant"); f.Stored != next+11 || f.Missing+f.Duplicate > 0 {
		t.Errorf("%+v; want %d stored, and none missing", f, next+11)
	}
}
