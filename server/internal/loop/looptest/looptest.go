// Package looptest runs loops without a kernel: a network in memory and a driver that delivers what
// clients send in any pieces, in any order between connections, takes output in any pieces, refuses
// and fails, all by a seed. What it lends it overwrites when it takes it back.
package looptest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/server/internal/loop"
)

// Client is one connection: what it sends, how it ends, and afterwards what it got.
type Client struct {
	Send  []byte
	Later []Piece       // sent behind that, each in its time
	Reads time.Duration // when it begins to read; until then there is room for smallWindow bytes
	End   End
	Got   []byte
	Lent  int           // bytes of what it sent that the driver received: the App has received the others
	Lost  int           // bytes that a reset has taken from it: Got is without them
	Ended time.Duration // when the server had closed the connection
}

// Piece is what a client sends at a time from the beginning of Run.
type Piece struct {
	At   time.Duration
	Send []byte
}

const smallWindow = 1000

// End is what a client does when it has sent everything.
type End uint8

// The ends.
const (
	HalfClose End = iota // it ends its side, and reads on
	Reset                // it resets the connection, at any moment from then on
	Never                // it waits for the server to end it
)

// Config says how rude the network is.
type Config struct {
	Seed   uint64
	Gentle bool // everything comes and goes whole: the reference for the others
	Aside  bool // goroutines may receive by themselves, as with epoll
	OnLoop bool // as in loop.Config
	NewApp func(*loop.Conn) loop.App
	Limit  time.Duration // for everything; 0 means 1 min
	Drain  time.Duration // when the server begins to end; 0: never
	Log    *slog.Logger  // nil: none
}

// Run serves the clients by one loop, until each connection is closed. It returns an error if that
// does not come to an end.
func Run(cfg Config, clients []*Client) error {
	n := &network{
		cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 1)), left: len(clients), over: make(chan struct{}),
		began: time.Now(),
	}
	for i, c := range clients {
		n.sockets = append(n.sockets,
			&socket{n: n, client: c, index: i, toSend: c.Send, later: c.Later, window: n.roomForOutput()})
		if c.Reads > 0 {
			n.sockets[i].window = smallWindow
		}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	g := loop.New(loop.Config{
		Loops: 1, MaxConns: len(clients) + 1, Log: cfg.Log, OnLoop: cfg.OnLoop, NewApp: cfg.NewApp,
		NewDriver: func(l *loop.Loop) (loop.Driver, error) {
			return &driver{l: l, n: n, woken: make(chan struct{}, 1), buf: make([]byte, 4<<10)}, nil
		},
	})
	if err := g.Start(); err != nil {
		return err
	}
	g.Listen(&loop.Listener{FD: -1}, 0, nil, nil)
	if cfg.Drain > 0 {
		defer time.AfterFunc(cfg.Drain, func() { _ = g.Drain(context.Background()) }).Stop()
	}
	limit := cfg.Limit
	if limit == 0 {
		limit = time.Minute
	}
	var err error
	select {
	case <-n.over:
	case <-time.After(limit):
		n.mu.Lock()
		for _, s := range n.sockets {
			if !s.closed {
				err = errors.Join(err,
					fmt.Errorf("seed %d: connection %d hangs: accepted %v, %d bytes to send, %d to receive, ended %v, got %d bytes",
						cfg.Seed, s.index, s.accepted, len(s.toSend), len(s.rx), s.ended, len(s.client.Got)))
			}
		}
		n.mu.Unlock()
	}
	return errors.Join(err, g.Stop())
}

// network is all connections. mu guards all of it: goroutines use sockets, too.
type network struct {
	cfg     Config
	mu      sync.Mutex
	rng     *rand.Rand
	sockets []*socket
	left    int // connections that are not closed
	over    chan struct{}
	began   time.Time
}

// some is a part of n, by the seed.
func (n *network) some(most int) int {
	if n.cfg.Gentle || most <= 1 {
		return most
	}
	switch n.rng.IntN(4) {
	case 0:
		return 1
	case 1:
		return most
	}
	return 1 + n.rng.IntN(most)
}

func (n *network) roomForOutput() int {
	if n.cfg.Gentle {
		return 1 << 30
	}
	return 1 + n.rng.IntN(20_000)
}

// socket is a connection as the loop sees it.
type socket struct {
	n        *network
	client   *Client
	index    int
	conn     *loop.Conn // once it is open
	toSend   []byte     // by the client, and not sent yet
	later    []Piece    // … and those whose time has not come
	rx       []byte     // sent, and not received by the server
	corked   []byte     // of SendMore, and not at the client yet
	window   int        // bytes that the client's side still takes
	accepted bool
	ended    bool // the client has ended its side
	reset    bool
	shut     bool // the server has ended its side
	hung     bool
	closed   bool
	edge     bool // something has changed that the driver has not told of
	roomEdge bool
	held     bool
	pending  bool // a send of the loop is under way
	canceled bool
}

var errReset = syscall.ECONNRESET

// fail is why nothing can be sent.
func (s *socket) fail() error {
	switch {
	case s.reset:
		return errReset
	case s.hung, s.shut, s.closed:
		return syscall.EPIPE
	}
	return nil
}

func (s *socket) take(b []byte) (int, error) {
	if err := s.fail(); err != nil {
		return 0, err
	}
	if s.window == 0 {
		return 0, loop.ErrWait
	}
	m := min(s.n.some(len(b)), s.window)
	s.client.Got = append(append(s.client.Got, s.corked...), b[:m]...)
	s.corked = nil
	s.window -= m
	return m, nil
}

// Send implements loop.Socket.
func (s *socket) Send(b []byte) (int, error) {
	s.n.mu.Lock()
	defer s.n.mu.Unlock()
	return s.take(b)
}

// SendMore implements loop.Socket: some of what is sent waits for what follows.
func (s *socket) SendMore(b []byte) (int, error) {
	s.n.mu.Lock()
	defer s.n.mu.Unlock()
	m, err := s.take(b)
	if m == 0 {
		return 0, err
	}
	got := s.client.Got
	kept := len(got) - min(s.n.some(m+1), m)
	s.client.Got, s.corked = got[:kept], append([]byte(nil), got[kept:]...)
	return m, err
}

// SendAll implements loop.Socket.
func (s *socket) SendAll(bufs net.Buffers) (done int, err error) {
	s.n.mu.Lock()
	defer s.n.mu.Unlock()
	for _, b := range bufs {
		m, err := s.take(b)
		done += m
		if err != nil && done == 0 {
			return 0, err
		}
		if err != nil || m < len(b) {
			break
		}
	}
	return done, nil
}

// SendFile implements loop.Socket.
func (s *socket) SendFile(f *os.File, off int64, n int) (int, error) {
	s.n.mu.Lock()
	defer s.n.mu.Unlock()
	b := make([]byte, min(n, 4<<10))
	m, err := f.ReadAt(b, off)
	if m == 0 {
		if err == io.EOF {
			err = nil
		}
		return 0, err
	}
	return s.take(b[:m])
}

// SendPrompt implements loop.Socket.
func (s *socket) SendPrompt(f *os.File, off int64, n int) (int, error) { return s.SendFile(f, off, n) }

// InCache implements loop.Socket: the seed knows.
func (s *socket) InCache(*os.File, int64, int) sys.Presence {
	s.n.mu.Lock()
	defer s.n.mu.Unlock()
	return sys.Presence(s.n.some(int(sys.Prompt)+1) - 1)
}

// Receive implements loop.Socket.
func (s *socket) Receive(b []byte) (int, error) {
	s.n.mu.Lock()
	defer s.n.mu.Unlock()
	switch {
	case s.reset:
		return 0, errReset
	case len(s.rx) > 0:
		m := copy(b, s.rx) // a kernel gives all that there is room for
		s.rx = s.rx[m:]
		return m, nil
	case s.ended || s.hung:
		return 0, nil
	}
	return 0, loop.ErrWait
}

// Peek implements loop.Socket.
func (s *socket) Peek() error {
	s.n.mu.Lock()
	defer s.n.mu.Unlock()
	if s.reset || len(s.rx) > 0 || s.ended || s.hung {
		return nil
	}
	return loop.ErrWait
}

// Unsent implements loop.Socket.
func (s *socket) Unsent() int {
	s.n.mu.Lock()
	defer s.n.mu.Unlock()
	return s.unread()
}

// unread is what a client that does not read yet has still to get.
func (s *socket) unread() int {
	if time.Since(s.n.began) >= s.client.Reads {
		return 0
	}
	return len(s.client.Got)
}

// EndSending implements loop.Socket.
func (s *socket) EndSending() error {
	s.n.mu.Lock()
	defer s.n.mu.Unlock()
	if err := s.fail(); err != nil {
		return err
	}
	s.shut = true
	s.client.Got = append(s.client.Got, s.corked...)
	s.corked = nil
	return nil
}

// EndReceiving implements loop.Socket.
func (s *socket) EndReceiving() error { return nil }

// Hang implements loop.Socket.
func (s *socket) Hang() {
	s.n.mu.Lock()
	defer s.n.mu.Unlock()
	s.hung, s.edge, s.roomEdge = true, true, true
}

// Close implements loop.Socket.
func (s *socket) Close() error {
	s.n.mu.Lock()
	defer s.n.mu.Unlock()
	if s.closed {
		return os.ErrClosed
	}
	s.closed = true
	if len(s.rx)+len(s.toSend)+len(s.later) > 0 { // the kernel answers that by a reset
		s.client.Lost = s.unread()
		s.client.Got = s.client.Got[:len(s.client.Got)-s.client.Lost]
	}
	s.client.Ended = time.Since(s.n.began)
	if s.n.left--; s.n.left == 0 {
		close(s.n.over)
	}
	return nil
}

// Local implements loop.Socket.
func (s *socket) Local() (net.Addr, error) { return &net.TCPAddr{Port: 1}, nil }

// Peer implements loop.Socket.
func (s *socket) Peer() (net.Addr, error) { return &net.TCPAddr{Port: 1000 + s.index}, nil }

// FD implements loop.Socket.
func (s *socket) FD() int { return -1 }
