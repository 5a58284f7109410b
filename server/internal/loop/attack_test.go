package loop

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
)

// stub is a driver that needs no kernel: it does what it is told on its loop.
type stub struct {
	l      *Loop
	wake   chan struct{}
	do     chan func()
	shut   atomic.Bool
	late   chan struct{} // gets something when Wake comes after Shut
	onWake func()
	all    bool // it receives for goroutines, too
}

func (d *stub) Wait(timeout time.Duration, _ bool) error {
	after := make(<-chan time.Time)
	if timeout >= 0 {
		after = time.After(timeout)
	}
	select {
	case <-d.wake:
		d.l.Tick()
	case f := <-d.do:
		d.l.Tick()
		f()
	case <-after:
		d.l.Tick()
	}
	return nil
}

func (d *stub) Wake() {
	if d.onWake != nil {
		d.onWake()
	}
	if d.shut.Load() {
		select {
		case d.late <- struct{}{}:
		default:
		}
		return
	}
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *stub) Accept(*Listener) error        { return nil }
func (d *stub) Pause(*Listener)               {}
func (d *stub) Unlisten(ln *Listener, _ bool) { _ = ln.Close(); d.l.Unlistened(ln) }
func (d *stub) Open(*Conn) error              { return nil }
func (d *stub) Hold(*Conn)                    {}
func (d *stub) Resume(*Conn)                  {}
func (d *stub) Send(c *Conn)                  { d.l.Sent(c, c.Queued(), nil) }
func (d *stub) CancelSend(c *Conn)            { d.l.Sent(c, 0, nil) }
func (d *stub) AwaitRoom(*Conn)               {}
func (d *stub) Detach(c *Conn)                { d.l.Detached(c) }
func (d *stub) Chunk(bool) *Chunk             { return &Chunk{Mem: make([]byte, LargeChunk)} }
func (d *stub) Recycle(*Chunk)                {}
func (d *stub) Untouched(*Conn) bool          { return true }
func (d *stub) ReadsAside() bool              { return !d.all }
func (d *stub) Recover()                      {}
func (d *stub) Figures() Figures              { return Figures{} }
func (d *stub) Shut() error                   { d.shut.Store(true); return nil }
func (d *stub) Close(c *Conn) {
	if c.Slot == nil && d.l.MayClose(c) {
		c.Slot = true
		d.l.Closed(c)
	}
}

// pipe is a socket that holds bytes.
type pipe struct {
	mu      sync.Mutex
	b       []byte
	between func() // while a receive is under way
}

func (p *pipe) Receive(b []byte) (int, error) {
	p.mu.Lock()
	n := copy(b, p.b)
	p.b = p.b[n:]
	f := p.between
	p.mu.Unlock()
	if f != nil {
		f()
	}
	if n == 0 {
		return 0, ErrWait
	}
	return n, nil
}

func (p *pipe) Peek() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.b) == 0 {
		return ErrWait
	}
	return nil
}
func (p *pipe) Send(b []byte) (int, error)                 { return len(b), nil }
func (p *pipe) SendMore(b []byte) (int, error)             { return len(b), nil }
func (p *pipe) SendAll(b net.Buffers) (int, error)         { return 0, io.ErrClosedPipe }
func (p *pipe) SendFile(*os.File, int64, int) (int, error) { return 0, io.ErrClosedPipe }
func (p *pipe) SendPrompt(*os.File, int64, int) (int, error) {
	return 0, io.ErrClosedPipe
}
func (p *pipe) InCache(*os.File, int64, int) sys.Presence { return sys.Absent }
func (p *pipe) EndSending() error                         { return nil }
func (p *pipe) Unsent() int                               { return 0 }
func (p *pipe) EndReceiving() error                       { return nil }
func (p *pipe) Hang()                                     {}
func (p *pipe) Close() error                              { return nil }
func (p *pipe) Local() (net.Addr, error)                  { return &net.TCPAddr{}, nil }
func (p *pipe) Peer() (net.Addr, error)                   { return &net.TCPAddr{}, nil }
func (p *pipe) FD() int                                   { return -1 }

// stubbed is a group of one loop with a stub, whose connections are served by serve.
func stubbed(t *testing.T, serve func(*GoConn)) (*Group, *stub) {
	return stubbedApp(t, func(c *Conn) App { return NewGoConn(c, serve) })
}

func stubbedApp(t *testing.T, app func(*Conn) App) (*Group, *stub) {
	d := &stub{wake: make(chan struct{}, 1), do: make(chan func()), late: make(chan struct{}, 1)}
	g := New(Config{
		Loops: 1, MaxConns: 100, Log: slog.New(slog.DiscardHandler),
		NewDriver: func(l *Loop) (Driver, error) { d.l = l; return d, nil },
		NewApp:    app,
	})
	if err := g.Start(); err != nil {
		t.Fatal(err)
	}
	return g, d
}

// open gives the loop a connection.
func (d *stub) open(g *Group, s Socket) {
	g.conns.Add(1)
	d.l.post(post{what: postOpen, sock: s, ln: &Listener{}})
}

// TestAWakeUpComesBeforeTheEndOfTheDriver: who has left a post wakes the loop by a descriptor of
// the driver. That must be there for as long as somebody may do so: its number could be somebody
// else's by then.
func TestAWakeUpComesBeforeTheEndOfTheDriver(t *testing.T) {
	g, d := stubbed(t, nil)
	for !d.l.asleep.Load() {
		time.Sleep(time.Millisecond)
	}
	first, ended := make(chan struct{}), make(chan struct{})
	var once sync.Once
	d.onWake = func() { // the first to wake the loop is slow
		mine := false
		once.Do(func() { mine = true })
		if mine {
			close(first)
			select {
			case <-ended:
			case <-time.After(2 * time.Second):
			}
		}
	}
	go g.EndIdle(0, 0)
	<-first
	d.do <- func() {} // the loop comes back because of something else
	g.Stop()
	close(ended)
	select {
	case <-d.late:
		t.Error("the loop was woken by a driver that has been shut")
	case <-time.After(200 * time.Millisecond):
	}
}

// TestTwoReadersAreBothWoken: one of two readers takes a part of what is there while the other
// waits; the rest is the other's.
func TestTwoReadersAreBothWoken(t *testing.T) {
	got := make(chan int, 2)
	conn := make(chan *GoConn, 1)
	end := make(chan struct{})
	g, d := stubbed(t, func(c *GoConn) { conn <- c; <-end })
	defer g.Stop()
	defer close(end)
	p := &pipe{}
	d.open(g, p)
	c := <-conn
	var entered atomic.Int32
	for range 2 {
		go func() {
			entered.Add(1)
			n, _ := c.Read(make([]byte, 10))
			got <- n
		}()
	}
	for entered.Load() < 2 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond) // both wait; if not, the test passes
	p.mu.Lock()
	p.b = make([]byte, 20)
	p.between = func() { time.Sleep(50 * time.Millisecond) } // the other looks meanwhile
	p.mu.Unlock()
	d.do <- func() { d.l.MayReceive(c.c, 4<<10, false) } // an edge
	for i := range 2 {
		select {
		case <-got:
		case <-time.After(time.Minute):
			t.Fatalf("%d of 2 readers were woken, for 20 bytes of which each takes 10", i)
		}
	}
}

// TestNothingIsReceivedAfterDetached: what comes after Detached is for who took the socket over.
func TestNothingIsReceivedAfterDetached(t *testing.T) {
	conn := make(chan *GoConn, 1)
	end := make(chan struct{})
	g, d := stubbed(t, func(c *GoConn) { conn <- c; <-end })
	defer g.Stop()
	defer close(end)
	d.open(g, &pipe{})
	c := <-conn
	may := make(chan bool, 1)
	d.do <- func() {
		d.l.Detached(c.c)
		may <- d.l.MayReceive(c.c, 4<<10, false) > 0
	}
	if <-may {
		t.Error("the loop may receive from a socket that it has given away")
	}
}

// ending is a socket that holds some bytes, and ends behind them.
type ending struct {
	pipe
	with error // nil: by the end of the stream
}

func (e *ending) Receive(b []byte) (int, error) {
	if n, err := e.pipe.Receive(b); err != ErrWait {
		return n, err
	}
	return 0, e.with
}

// TestTheLoopReceivesLargeInput: for a reader who waits for much the loop receives what the socket
// has behind the driver's bytes. What it finds there, the end too, the reader is told in its order.
func TestTheLoopReceivesLargeInput(t *testing.T) {
	for name, with := range map[string]error{"end": nil, "reset": syscall.ECONNRESET, "more to come": ErrWait} {
		t.Run(name, func(t *testing.T) {
			conn, came, end := make(chan *GoConn, 1), make(chan []byte, 10), make(chan error, 1)
			g, d := stubbed(t, func(c *GoConn) {
				conn <- c
				for {
					b := make([]byte, 100_000)
					n, err := c.ReadPart(b, 200_000)
					if err != nil {
						end <- err
						return
					}
					came <- b[:n]
				}
			})
			d.all = true
			defer g.Stop()
			d.open(g, &ending{pipe{b: bytes.Repeat([]byte("b"), 30_000)}, with})
			c := <-conn
			for _, behind := range []int{30_000, 0} {
				testenv.Until(t, time.Minute, "a reader", c.large.Load)
				d.do <- func() { d.l.Received(c.c, bytes.Repeat([]byte("a"), SmallBlock)) }
				if got, want := <-came,
					strings.Repeat("a", SmallBlock)+strings.Repeat("b", behind); string(got) != want {
					t.Errorf("%d bytes came, want %d: %.10q … %.10q", len(got), len(want), got,
						got[max(len(got)-10, 0):])
				}
			}
			want := with
			switch with {
			case nil:
				want = io.EOF
			case ErrWait:
				want = net.ErrClosed
				d.do <- func() { c.c.Kill(net.ErrClosed) }
			}
			select {
			case err := <-end:
				if !errors.Is(err, want) {
					t.Errorf("the reader is told %v, want %v", err, want)
				}
			case <-time.After(time.Minute):
				t.Errorf("the reader waits, and should be told %v", want)
			}
		})
	}
}

// task is a Service that does one thing on a coroutine.
type task struct {
	g     *CoConn
	do    func(*CoConn)
	begun chan struct{}
}

func (s *task) Begin()           { close(s.begun) }
func (s *task) Promoted(*GoConn) {}
func (s *task) Closed()          {}
func (s *task) Serve() Verdict   { s.do(s.g); return Over }

// tasked opens a connection on which a coroutine does do.
func tasked(t *testing.T, sock Socket, do func(*CoConn)) (*CoConn, *stub) {
	s := &task{do: do, begun: make(chan struct{})}
	g, d := stubbedApp(t, func(c *Conn) App {
		s.g = NewCoConn(c)
		s.g.Serve(s)
		return s.g
	})
	t.Cleanup(func() { g.Stop() })
	d.open(g, sock)
	<-s.begun
	return s.g, d
}

// endless is a socket of a client that sends more than anybody can take.
type endless struct{ pipe }

func (*endless) Receive(b []byte) (int, error) { return len(b), nil }

// TestAFloodHoldsNobodyUp: who sends without end gets a share of each turn, and no more.
func TestAFloodHoldsNobodyUp(t *testing.T) {
	for name, size := range map[string]int{"to its place": 100_000, "by blocks": 8_000} {
		t.Run(name, func(t *testing.T) {
			taken := 0 // the loop's
			g, d := tasked(t, &endless{}, func(g *CoConn) {
				b := make([]byte, size)
				for {
					n, err := g.ReadPart(b, 1<<40)
					if taken += n; err != nil {
						return
					}
				}
			})
			took := make(chan int)
			for turn := range 3 {
				go func() {
					d.do <- func() { d.l.Received(g.c, make([]byte, SmallBlock)) }
					d.do <- func() { took <- taken }
				}()
				select {
				case n := <-took:
					if want := (turn + 1) * (SmallBlock + mostShare); n != want {
						t.Errorf("%d bytes were taken by the end of turn %d, want %d", n, turn, want)
					}
				case <-time.After(time.Minute):
					t.Fatal("the loop has not come back")
				}
			}
		})
	}
}

// filing is a socket that sends a part of a file, slowly, and is full then.
type filing struct {
	pipe
	begun, end chan struct{}
	calls      atomic.Int32
}

func (f *filing) SendFile(*os.File, int64, int) (int, error) {
	if f.calls.Add(1) == 1 {
		close(f.begun)
		<-f.end
	}
	return 1000, ErrWait
}

// cachedFile is a socket that always has room, for a file of which it has an opinion.
type cachedFile struct {
	pipe
	presence sys.Presence
	most     int64 // that it takes at a time; 0: all
	asked    atomic.Int64
	prompt   atomic.Int64 // bytes sent without a word to the scheduler
	taken    atomic.Int64
	large    atomic.Int64 // the most that one call was asked for
}

func (f *cachedFile) InCache(*os.File, int64, int) sys.Presence {
	f.asked.Add(1)
	return f.presence
}

func (f *cachedFile) SendPrompt(from *os.File, off int64, n int) (int, error) {
	m, err := f.SendFile(from, off, n)
	f.prompt.Add(int64(m))
	return m, err
}

func (f *cachedFile) SendFile(_ *os.File, _ int64, n int) (int, error) {
	if f.most > 0 {
		n = min(n, int(f.most))
	}
	f.taken.Add(int64(n))
	f.large.Store(max(f.large.Load(), int64(n)))
	return n, nil
}

// TestACachedFileHoldsNobodyUp: the loop itself sends a file that is in the page cache, a share of
// it each turn.
func TestACachedFileHoldsNobodyUp(t *testing.T) {
	const turns = 10 // at least: a turn of this loop looks at its posts twice
	f := &cachedFile{presence: sys.Prompt}
	ended := make(chan int64, 1)
	_, d := tasked(t, f, func(g *CoConn) {
		n, err := g.SendFile(nil, 0, 2*turns*fileShare)
		if err != nil || g.c.loop.turns.Load() < turns {
			t.Errorf("sent by turn %d, want %d or later: %v", g.c.loop.turns.Load(), turns, err)
		}
		ended <- n
	})
	for {
		select {
		case n := <-ended:
			if n != 2*turns*fileShare || f.taken.Load() != n || f.large.Load() != fileShare {
				t.Errorf("%d bytes are said to be sent, %d were, %d at a time; want %d, %d at a time", n,
					f.taken.Load(), f.large.Load(), 2*turns*fileShare, fileShare)
			}
			return
		case d.do <- func() {}:
		case <-time.After(time.Minute):
			t.Fatal("the file is not sent")
		}
	}
}

// TestTheLoopDoesNotWaitForADisk: what of a file is not in the page cache a goroutine sends.
func TestTheLoopDoesNotWaitForADisk(t *testing.T) {
	f := &filing{begun: make(chan struct{}), end: make(chan struct{})} // its disk takes until end
	_, d := tasked(t, f, func(g *CoConn) { _, _ = g.SendFile(nil, 0, 20_000) })
	<-f.begun
	did := make(chan struct{})
	d.do <- func() { close(did) }
	select {
	case <-did:
	case <-time.After(time.Minute):
		t.Error("the loop waits")
	}
	close(f.end)
}

// TestNothingOfAFileIsSentAfterTheEnd: a connection ends while a goroutine sends a part of a file
// for it. Its descriptor may be somebody else's as soon as that comes back.
func TestNothingOfAFileIsSentAfterTheEnd(t *testing.T) {
	f := &filing{begun: make(chan struct{}), end: make(chan struct{})}
	ended := make(chan error, 1)
	g, d := tasked(t, f, func(g *CoConn) {
		n, err := g.SendFile(nil, 0, 1<<20)
		if n != 1000 {
			t.Errorf("%d bytes of the file are said to be sent, want 1000", n)
		}
		ended <- err
	})
	<-f.begun
	d.do <- func() {
		g.c.Kill(syscall.ECONNRESET)
		close(f.end)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("it ends by %v, want %v", err, net.ErrClosed)
		}
	case <-time.After(time.Minute):
		t.Fatal("the coroutine waits for ever")
	}
	if n := f.calls.Load(); n != 1 {
		t.Errorf("the socket was used %d times, want once", n)
	}
}

// hangingUp is a socket on which a send is under way until end, and finds that the loop has hung
// up.
type hangingUp struct {
	pipe
	begun, end chan struct{}
}

func (h *hangingUp) Send([]byte) (int, error) {
	close(h.begun)
	<-h.end
	return 0, syscall.EPIPE
}

// TestAWriteThatCloseCutsOff: Close by another goroutine hangs up while a handler sends. The
// handler is told of that, and not of a client that has left.
func TestAWriteThatCloseCutsOff(t *testing.T) {
	h := &hangingUp{begun: make(chan struct{}), end: make(chan struct{})}
	conn, told := make(chan *GoConn, 1), make(chan error, 1)
	g, d := stubbed(t, func(c *GoConn) {
		conn <- c
		_, err := c.Write([]byte("x"))
		told <- err
	})
	defer g.Stop()
	d.open(g, h)
	<-h.begun
	if err := (<-conn).Close(); err != nil {
		t.Error(err)
	}
	close(h.end)
	if err := <-told; !errors.Is(err, net.ErrClosed) {
		t.Errorf("the handler is told %v, want %v", err, net.ErrClosed)
	}
}
