package loadgen

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/rt"
)

// truthVariable makes this test's own program a truth server: its value is the name of a shape and
// how long that runs.
const truthVariable = "TALLYWHEEL_LOADGEN_TRUTH"

func TestMain(m *testing.M) {
	if text := os.Getenv(truthVariable); text != "" {
		if err := serveTruth(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// deed is what the truth server does with a request.
type deed struct {
	wait   time.Duration
	status int      // of the answer; 0: there is none, and end says what comes instead
	pieces int      // of a body in chunks, with pauses of a millisecond; 0: it has a length
	twice  bool     // the answer comes twice
	end    deedsEnd // of the connection, behind the answer or in its place
}

type deedsEnd int

const (
	goesOn deedsEnd = iota
	closes          // in order
	resets
	stays // and nothing comes any more
)

// fate is what became of a request. Times are the wall clock's, in nanoseconds.
type fate struct {
	Came int64  // when the kernel had it
	End  int64  // just before the last byte went to the kernel, or the connection was ended; 0: never
	Kind string // as errors are called in a Result; "": a good answer
}

// account is what a truth server knows.
type account struct {
	Fates   []fate // in the order in which requests came
	Unasked int    // answers to nothing
}

// truthServer answers as it is told, and writes down what it did: what a load measures must agree.
// It is a process of its own, of one thread that comes before all others where that is allowed: if
// it were late between the clock and the socket, the load would be blamed.
type truthServer struct {
	do    func(n int, rng *rand.Rand) deed
	rng   *rand.Rand
	epoll *sys.Epoll
	conns map[uint64]*truthConn
	made  uint64
	due   []*truthConn // that have something to do at a time, soonest first
	begun int
	account
}

// truthConn is a connection. It answers one request at a time.
type truthConn struct {
	id    uint64
	fd    int
	in    []byte
	queue []int // requests, by their place in the account; the first is being answered
	deed  deed  // with that
	step  int   // of it
	at    int64 // when it is to be done
}

// Descriptors that a truth server watches beside connections.
const (
	truthEnd = iota
	truthListener
	truthFirst
)

// serveTruth writes its address to the standard output, serves until the end of the standard input,
// and writes its account.
func serveTruth(text string) error {
	name, rest, _ := strings.Cut(text, "|")
	length, err := time.ParseDuration(rest)
	if err != nil {
		return err
	}
	h, ok := shapes(length)[name]
	if !ok {
		return fmt.Errorf("there is no shape %q", name)
	}
	debug.SetGCPercent(-1)
	runtime.LockOSThread()
	if err := rt.SetScheduling(rt.Scheduling{Policy: rt.FIFO, Priority: 2}); err != nil {
		_ = rt.SetTimerSlack(1) // without the right it may be late, and a narrow test fails
	}
	s := &truthServer{do: h.do, rng: rand.New(rand.NewPCG(1, 2)), conns: map[uint64]*truthConn{}, made: truthFirst}
	s.Fates = make([]fate, 0, 1<<16)
	if s.epoll, err = sys.NewEpoll(256); err != nil {
		return err
	}
	listener, port, err := listenStamped()
	if err != nil {
		return err
	}
	err = errors.Join(s.epoll.Add(0, sys.Readable, truthEnd), s.epoll.Add(listener, sys.Readable, truthListener))
	if err != nil {
		return err
	}
	fmt.Println(port)
	for {
		switch end, err := s.turn(listener); {
		case err != nil:
			return err
		case end:
			return json.NewEncoder(os.Stdout).Encode(&s.account)
		}
	}
}

// listenStamped listens on a port whose connections tell when the kernel had what they give.
func listenStamped() (fd, port int, err error) {
	fd, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, 0, err
	}
	sys.NoDelay(fd)
	err = errors.Join(
		syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_TIMESTAMPNS, 1),
		syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}),
		syscall.Listen(fd, 1024),
	)
	at, nameErr := syscall.Getsockname(fd)
	if err = errors.Join(err, nameErr); err != nil {
		return -1, 0, err
	}
	return fd, at.(*syscall.SockaddrInet4).Port, nil
}

// turn does what is due, and waits for the kernel once.
func (s *truthServer) turn(listener int) (end bool, err error) {
	wait := time.Second
	for len(s.due) > 0 {
		c := s.due[0]
		if wait = time.Duration(c.at - now()); wait > 0 {
			break
		}
		s.due, wait = s.due[:copy(s.due, s.due[1:])], time.Second
		if err := s.act(c); err != nil {
			return false, err
		}
	}
	n, err := s.epoll.WaitBriefly(min(wait, time.Second))
	for i := 0; i < n && err == nil; i++ {
		switch _, id := s.epoll.Event(i); id {
		case truthEnd:
			return true, nil
		case truthListener:
			err = s.accept(listener)
		default:
			s.receive(s.conns[id])
		}
	}
	return false, err
}

func now() int64 { return time.Now().UnixNano() }

func (s *truthServer) accept(listener int) error {
	for {
		fd, _, err := sys.Accept(listener)
		if sys.Pending(err) {
			return nil
		} else if err != nil {
			return err
		}
		c := &truthConn{id: s.made, fd: fd, in: make([]byte, 0, 4096)}
		s.conns[c.id] = c
		s.made++
		if err := s.epoll.Add(fd, sys.Readable, c.id); err != nil {
			return err
		}
	}
}

func (s *truthServer) close(c *truthConn) {
	_ = sys.CloseFD(c.fd)
	delete(s.conns, c.id)
	s.due = slices.DeleteFunc(s.due, func(d *truthConn) bool { return d == c })
}

// receive reads once, and takes the requests that are whole.
func (s *truthServer) receive(c *truthConn) {
	n, came, err := receiveStamped(c.fd, c.in[len(c.in):cap(c.in)])
	if err == syscall.EAGAIN {
		return
	} else if err != nil || n == 0 {
		s.close(c)
		return
	}
	c.in = c.in[:len(c.in)+n]
	for {
		i := bytes.Index(c.in, []byte("\r\n\r\n"))
		if i < 0 {
			return
		}
		c.in = c.in[:copy(c.in, c.in[i+4:])]
		c.queue = append(c.queue, len(s.Fates))
		s.Fates = append(s.Fates, fate{Came: came})
		if len(c.queue) == 1 {
			s.begin(c)
		}
	}
}

// receiveStamped reads what is there, and says when the kernel had the last of it.
func receiveStamped(fd int, b []byte) (n int, came int64, err error) {
	oob := make([]byte, 64)
	n, size, _, _, err := syscall.Recvmsg(fd, b, oob, syscall.MSG_DONTWAIT)
	came = now()
	if err != nil {
		return 0, came, err
	}
	all, err := syscall.ParseSocketControlMessage(oob[:size])
	for _, m := range all {
		if m.Header.Level != syscall.SOL_SOCKET || m.Header.Type != syscall.SO_TIMESTAMPNS {
			continue
		}
		switch order := binary.NativeEndian; len(m.Data) { // a timespec
		case 16:
			came = int64(order.Uint64(m.Data))*1e9 + int64(order.Uint64(m.Data[8:]))
		case 8:
			came = int64(order.Uint32(m.Data))*1e9 + int64(order.Uint32(m.Data[4:]))
		}
	}
	return n, came, err
}

// begin takes the first request of the connection's queue up.
func (s *truthServer) begin(c *truthConn) {
	c.deed, c.step = s.do(s.begun, s.rng), 0
	s.begun++
	s.after(c, c.deed.wait)
}

func (s *truthServer) after(c *truthConn, wait time.Duration) {
	c.at = now() + int64(wait)
	i, _ := slices.BinarySearchFunc(s.due, c.at+1, func(d *truthConn, at int64) int { return cmp.Compare(d.at, at) })
	s.due = slices.Insert(s.due, i, c)
}

// act does the next step of a deed.
func (s *truthServer) act(c *truthConn) error {
	d := &c.deed
	if d.status == 0 {
		return s.leave(c)
	}
	head := fmt.Sprintf("HTTP/1.1 %d x\r\n", d.status)
	if d.end == closes {
		head += "Connection: close\r\n"
	}
	var text string
	switch {
	case d.pieces == 0:
		text = head + "Content-Length: 5\r\n\r\nhello"
		if d.twice {
			text += text
			s.Unasked++
		}
	case c.step < d.pieces:
		if c.step == 0 {
			text = head + "Transfer-Encoding: chunked\r\n\r\n"
		}
		text += "5\r\nhello\r\n"
	default:
		text = "0\r\n\r\n"
	}
	last := c.step == d.pieces
	b := []byte(text)
	if last {
		s.ended(c, kindOf(d.status))
	}
	if n, err := sys.Send(c.fd, b); err == nil && n < len(b) {
		return fmt.Errorf("a socket took %d of %d bytes", n, len(b))
	} // after an error the load has gone, which a receive will say
	c.step++
	switch {
	case !last:
		s.after(c, time.Millisecond)
	case d.end == closes:
		s.close(c)
	default:
		c.queue = c.queue[:copy(c.queue, c.queue[1:])]
		if len(c.queue) > 0 {
			s.begin(c)
		}
	}
	return nil
}

// leave gives no answer.
func (s *truthServer) leave(c *truthConn) error {
	switch c.deed.end {
	case closes:
		s.ended(c, "closed")
	case resets:
		if err := syscall.SetsockoptLinger(c.fd, syscall.SOL_SOCKET, syscall.SO_LINGER,
			&syscall.Linger{Onoff: 1}); err != nil {
			return err
		}
		s.ended(c, "reset")
	default:
		s.Fates[c.queue[0]].Kind = unanswered // it stays first in the queue: nothing is begun behind it
		return nil
	}
	s.close(c)
	return nil
}

func kindOf(status int) string {
	if status < 400 {
		return ""
	}
	return kindOfStatus(status)
}

func (s *truthServer) ended(c *truthConn, kind string) {
	f := &s.Fates[c.queue[0]]
	f.Kind, f.End = kind, now()
}

// startTruth starts a truth server. settle ends it, and returns what it knows.
func startTruth(t *testing.T, name string, length time.Duration) (url string, settle func() *account) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), truthVariable+"="+name+"|"+length.String())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // of a test that has failed
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var port int
	if _, err := fmt.Fscanln(out, &port); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("http://127.0.0.1:%d/", port), func() *account {
		a := &account{}
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(out)
		if err = errors.Join(err, json.Unmarshal(text, a), cmd.Wait()); err != nil {
			t.Fatal(err)
		}
		return a
	}
}
