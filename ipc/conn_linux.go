package ipc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// ErrRefused is in the error of [Listener.Accept] and [Conn.Receive] where [ConnConfig.Allow]
// turned the other side down.
var ErrRefused = errors.New("not allowed here")

// ErrFiles is in the error of [Conn.Receive] where a message came without its files: this process
// could open no more. Its data was taken, and comes with the error.
var ErrFiles = errors.New("not all files of a message could be taken: raise the limit of descriptors (ulimit -n, LimitNOFILE=)")

// Credentials say who a process is. The kernel fills them in, not the process. In another PID or
// user namespace than ours, PID is 0 and UID and GID are 65534 where they have no number here.
type Credentials struct {
	PID int // at the time of asking: it may have ended since; [Conn.PeerProcess] names it for good
	UID int
	GID int
}

// String is "pid 4711, uid 1000".
func (c Credentials) String() string { return fmt.Sprintf("pid %d, uid %d", c.PID, c.UID) }

// ConnConfig says what a connection takes. The zero value is ready.
type ConnConfig struct {
	// Allow turns a peer down by an error: when it connects, and for each message, since whoever
	// has the descriptor can send. Nil allows this process's own user, and root.
	Allow func(Credentials) error
	// MaxData is the most bytes of data that a message may bring; 0: 64 KiB.
	MaxData int
	// MaxFiles is the most files that a message may bring; 0: 16. More are closed, and an error.
	MaxFiles int
	// Bare has messages carry FDs in place of Files: descriptors that Go's poller does not know.
	Bare bool
	// Patience is how long Receive leaves a message where it is while this process can open no
	// more, and looks again: its files are lost only where that lasts. Behind one that was lost so,
	// the next ones wait a fiftieth, until there are descriptors again. 0: files are lost at once.
	Patience time.Duration
}

func (c *ConnConfig) fill() error {
	if c.Allow == nil {
		own := os.Geteuid()
		c.Allow = func(c Credentials) error {
			switch {
			case c.UID == own || c.UID == 0:
				return nil
			case own == 0:
				return errors.New("want root; see ConnConfig.Allow")
			}
			return fmt.Errorf("want uid %d or root; see ConnConfig.Allow", own)
		}
	}
	if c.MaxData == 0 {
		c.MaxData = 64 << 10
	}
	if c.MaxFiles == 0 {
		c.MaxFiles = 16
	}
	if c.MaxData < 0 || c.MaxData > MaxData || c.MaxFiles < 0 || c.MaxFiles > MaxFiles {
		return fmt.Errorf("ipc: MaxData %d, MaxFiles %d: want at most %d and %d", c.MaxData, c.MaxFiles, MaxData,
			MaxFiles)
	}
	return nil
}

func (c *ConnConfig) check(who Credentials) error {
	if err := c.Allow(who); err != nil {
		return fmt.Errorf("ipc: %v: %w: %w", who, ErrRefused, err)
	}
	return nil
}

// File is an open file under way, by whatever name the two sides have agreed on.
type File struct {
	Name string // 1 to [MaxName] bytes of printable ASCII without colons; need not be unique
	*os.File
}

// Message is what a packet carries.
type Message struct {
	Data  []byte
	Files []File      // sent: still the sender's; received: the receiver's, closed on exec
	FDs   []int       // … with [ConnConfig.Bare], in place of Files
	From  Credentials // received: who sent it, by the kernel
}

// Close closes the files of a message that was received.
func (m *Message) Close() error {
	var err error
	for _, f := range m.Files {
		err = errors.Join(err, f.Close())
	}
	for _, fd := range m.FDs {
		err = errors.Join(err, sys.CloseFD(fd))
	}
	m.Files, m.FDs = nil, nil
	return err
}

// Conn carries messages between two processes on one machine, each whole or not at all, in order
// (a Unix socket of kind SOCK_SEQPACKET). Any goroutine may send, one may receive, all may close.
type Conn struct {
	c    *net.UnixConn
	cfg  ConnConfig
	peer Credentials

	receiving sync.Mutex
	packet    []byte // of receiving
	oob       []byte
	lost      bool // files of the last message that had some, for want of descriptors
}

// Pair makes a connection to a process that is to be started: theirs goes to it, as one of
// exec.Cmd's ExtraFiles, and is closed here then; [Inherit] makes it a Conn there.
func Pair(cfg ConnConfig) (ours *Conn, theirs *os.File, err error) {
	a, b, err := sys.PacketPair()
	if err != nil {
		return nil, nil, fmt.Errorf("ipc: %w", err)
	}
	err = onFD(b, sys.AskCredentials) // from now on: a message sent before it is asked has none
	if err == nil {
		ours, err = Inherit(a, cfg)
	}
	if err != nil {
		return nil, nil, errors.Join(err, a.Close(), b.Close())
	}
	return ours, b, nil
}

// Inherit makes a Conn of a socket, such as [Pair] made for this process or [Conn.Receive] brought.
// It closes f if it succeeds.
func Inherit(f *os.File, cfg ConnConfig) (*Conn, error) {
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("ipc: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok || u.LocalAddr().Network() != "unixpacket" {
		return nil, errors.Join(fmt.Errorf("ipc: %s is no Unix socket of kind SOCK_SEQPACKET, but %s", f.Name(),
			c.LocalAddr().Network()), c.Close())
	}
	conn, err := newConn(u, cfg)
	if err != nil {
		return nil, err
	}
	_ = f.Close() // net.FileConn has duplicated it
	return conn, nil
}

// maxAddress bounds an address, in bytes: a path needs one more, which is 0 (see unix(7)).
const maxAddress = 107

// checkAddress says what is wrong with an address that no socket can have.
func checkAddress(address string) error {
	if address == "" || len(address) > maxAddress {
		return fmt.Errorf("ipc: address %q has %d bytes: want 1 to %d; take a shorter path, or a relative one", address,
			len(address), maxAddress)
	}
	return nil
}

// Dial connects to a [Listener]. An address that begins with @ has no file (see unix(7)).
func Dial(ctx context.Context, address string, cfg ConnConfig) (*Conn, error) {
	if err := checkAddress(address); err != nil {
		return nil, err
	}
	d := net.Dialer{Control: askCredentials}
	c, err := d.DialContext(ctx, "unixpacket", address)
	if err != nil {
		return nil, fmt.Errorf("ipc: %w", err)
	}
	return newConn(c.(*net.UnixConn), cfg)
}

// newConn takes u over.
func newConn(u *net.UnixConn, cfg ConnConfig) (*Conn, error) {
	c := &Conn{c: u, cfg: cfg}
	err := c.cfg.fill()
	if err == nil {
		err = onFD(u, func(fd int) error {
			peer, err := sys.PeerCredentials(fd)
			c.peer = credentials(&peer)
			return errors.Join(err, sys.AskCredentials(fd))
		})
	}
	if err == nil {
		err = c.cfg.check(c.peer)
	}
	if err != nil {
		return nil, errors.Join(err, u.Close())
	}
	return c, nil
}

func credentials(c *sys.Credentials) Credentials {
	return Credentials{PID: int(c.Pid), UID: int(c.Uid), GID: int(c.Gid)}
}

// Peer is who connected, listened, or made the pair, at that time.
func (c *Conn) Peer() Credentials { return c.peer }

// PeerProcess is the process of [Conn.Peer]. Of a pair that is the process that made it. Before
// Linux 6.5 it is looked up by its number, and is wrong if that has gone to another meanwhile.
func (c *Conn) PeerProcess() (*Process, error) {
	var p *Process
	err := onFD(c.c, func(fd int) error {
		pidfd, err := sys.PeerProcess(fd)
		if err != nil {
			p, err = OpenProcess(c.peer.PID)
			return err
		}
		p, err = newProcess(pidfd)
		return err
	})
	return p, err
}

// SetDeadline bounds sends and receives, those that wait now, too: os.ErrDeadlineExceeded.
func (c *Conn) SetDeadline(t time.Time) error { return c.c.SetDeadline(t) }

// SetReadDeadline is SetDeadline of receives alone.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.c.SetReadDeadline(t) }

// SetWriteDeadline is SetDeadline of sends alone.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.c.SetWriteDeadline(t) }

// Dup is a second descriptor of the connection, for a program that this process is about to
// execute, where [Inherit] makes it a Conn. The connection stays open; whoever has the descriptor
// closes it.
func (c *Conn) Dup() (fd int, err error) {
	err = onFD(c.c, func(own int) (err error) { fd, err = sys.Dup(own); return err })
	return fd, err
}

// CloseRead ends what can be sent to this side: Receive returns what waits, and then io.EOF, also
// where the peer's end is still open.
func (c *Conn) CloseRead() error { return c.c.CloseRead() }

// Close ends the connection: the peer's Receive returns io.EOF once it has what was sent.
func (c *Conn) Close() error { return c.c.Close() }

// Send sends a message. It waits while the socket's buffer is full, until the write deadline. A
// message longer than that buffer (some 200 KiB, net.core.wmem_default) is refused: EMSGSIZE.
func (c *Conn) Send(m Message) error {
	names := make([]string, 0, len(m.Files)+len(m.FDs))
	for _, f := range m.Files {
		names = append(names, f.Name)
	}
	for i := range m.FDs {
		names = append(names, strconv.Itoa(i))
	}
	packet, err := appendPacket(nil, names, m.Data)
	if err != nil {
		return err
	}
	err = withFDs(m.Files, make([]int, 0, len(names)), func(fds []int) error {
		fds = append(fds, m.FDs...)
		var rights []byte
		if len(fds) > 0 {
			rights = sys.Rights(fds...)
		}
		_, _, err := c.c.WriteMsgUnix(packet, rights, nil)
		return err
	})
	if err != nil {
		return fmt.Errorf("ipc: send: %w", err)
	}
	return nil
}

// withFDs calls do with the descriptors of files, which stay open meanwhile, and do not change:
// File.Fd may make one that waits, for all processes that share it.
func withFDs(files []File, fds []int, do func([]int) error) error {
	if len(files) == 0 {
		return do(fds)
	}
	if files[0].File == nil {
		return fmt.Errorf("file %q is nil", files[0].Name)
	}
	return onFD(files[0].File, func(fd int) error { return withFDs(files[1:], append(fds, fd), do) })
}

func onFD(c syscall.Conn, do func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = do(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// Receive returns the next message, whose Data is valid until the next Receive; its files are the
// caller's. io.EOF says that the peer has closed, or ended. A message that breaks a rule is an
// error, after which the connection can be used: it is too long, brings other files than it names
// or more than [ConnConfig.MaxFiles], comes from somebody who is not allowed, or there were no
// descriptors left to take its files ([ErrFiles]). None of its files stays open.
func (c *Conn) Receive() (Message, error) {
	c.receiving.Lock()
	defer c.receiving.Unlock()
	if c.packet == nil {
		c.packet, c.oob = make([]byte, head(c.cfg.MaxFiles)+c.cfg.MaxData), make([]byte, sys.ControlRoom)
	}
	if c.cfg.Patience == 0 {
		n, k, flags, _, err := c.c.ReadMsgUnix(c.packet, c.oob)
		return c.read(n, k, flags, err)
	}
	return c.receivePatiently()
}

// lookAgain is how often a message is looked at whose files cannot be taken.
const lookAgain = 10 * time.Millisecond

// receivePatiently looks at the next message, which brings its files, and takes it off the socket
// once those are here: one that is taken without them has lost them. receiving is held.
func (c *Conn) receivePatiently() (m Message, err error) {
	raw, err := c.c.SyscallConn()
	if err != nil {
		return m, fmt.Errorf("ipc: receive: %w", err)
	}
	patience := c.cfg.Patience
	if c.lost {
		patience /= 50
	}
	var until time.Time // zero: it was not waited yet
	for ; ; time.Sleep(lookAgain) {
		var n, k, flags int
		var peekErr error
		waitErr := raw.Read(func(fd uintptr) bool {
			n, k, flags, peekErr = sys.PeekPacket(int(fd), c.packet, c.oob)
			return !errors.Is(peekErr, syscall.EAGAIN)
		})
		if waitErr != nil {
			return m, fmt.Errorf("ipc: receive: %w", waitErr)
		}
		if peekErr == nil && n == 0 {
			peekErr = io.EOF
		}
		m, err = c.read(n, k, flags, peekErr)
		isShort := errors.Is(err, ErrFiles) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ENOBUFS)
		if now := time.Now(); until.IsZero() {
			until = now.Add(patience)
		} else if isShort && !now.Before(until) {
			isShort = false
		}
		if isShort {
			continue
		}
		if err == nil && len(m.Files)+len(m.FDs) > 0 || errors.Is(err, ErrFiles) {
			c.lost = err != nil
		}
		if peekErr == nil || errors.Is(peekErr, io.EOF) {
			_ = raw.Read(func(fd uintptr) bool { sys.SkipPacket(int(fd)); return true }) // an error: it is closed
		}
		return m, err
	}
}

// read makes a message of what came.
func (c *Conn) read(n, k, flags int, err error) (Message, error) {
	n, k = max(n, 0), max(k, 0)
	control, controlErr := sys.ReadControl(c.oob[:k]) // with an error, too: an empty packet counts as the end
	m, err := c.judge(c.packet[:n], control, flags, errors.Join(err, controlErr))
	if err != nil {
		for _, fd := range control.FDs {
			_ = sys.CloseFD(fd)
		}
		return Message{Data: m.Data, From: m.From}, err
	}
	if c.cfg.Bare {
		m.Files, m.FDs = nil, control.FDs
		return m, nil
	}
	for i, fd := range control.FDs {
		m.Files[i].File = os.NewFile(uintptr(fd), m.Files[i].Name)
	}
	return m, nil
}

// judge makes a message of what came, but for its files.
func (c *Conn) judge(packet []byte, control sys.Control, flags int, err error) (m Message, _ error) {
	switch {
	case errors.Is(err, io.EOF) && len(control.FDs) == 0:
		return m, io.EOF
	case err != nil:
		return m, fmt.Errorf("ipc: receive: %w", err)
	case control.From == nil:
		return m, errors.New("ipc: receive: a message without credentials")
	}
	m.From = credentials(control.From)
	if err := c.cfg.check(m.From); err != nil {
		return m, err
	}
	if flags&sys.TruncatedData != 0 {
		return m, fmt.Errorf("ipc: receive: a message of more than %d bytes; see ConnConfig.MaxData", c.cfg.MaxData)
	}
	names, data, err := parsePacket(packet)
	switch {
	case err != nil:
		return m, err
	case flags&sys.TruncatedControl != 0:
		m.Data = data
		return m, fmt.Errorf("ipc: receive: %w", ErrFiles)
	case len(names) != len(control.FDs):
		return m, fmt.Errorf("ipc: receive: a message with %d files that names %d", len(control.FDs), len(names))
	case len(names) > c.cfg.MaxFiles:
		return m, fmt.Errorf("ipc: receive: a message with %d files, more than %d; see ConnConfig.MaxFiles", len(names),
			c.cfg.MaxFiles)
	case len(data) > c.cfg.MaxData:
		return m, fmt.Errorf("ipc: receive: a message of %d bytes, more than %d; see ConnConfig.MaxData", len(data),
			c.cfg.MaxData)
	}
	m.Data = data
	for _, name := range names {
		m.Files = append(m.Files, File{Name: name})
	}
	return m, nil
}

// Listener takes connections at an address.
type Listener struct {
	l   *net.UnixListener
	cfg ConnConfig
}

// Listen listens at a path, whose file only this user can connect to, or at an address that begins
// with @, which has no file and no rights (see unix(7)): there [ConnConfig.Allow] alone decides.
// The file goes with [Listener.Close]; what a killed process has left must be removed by hand.
func Listen(address string, cfg ConnConfig) (*Listener, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	if err := checkAddress(address); err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{Control: askCredentials}).Listen(context.Background(), "unixpacket", address)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("ipc: %w; if nobody listens there, a killed process has left the file: remove it",
				err)
		}
		return nil, fmt.Errorf("ipc: %w", err)
	}
	if address[0] != '@' {
		if err := os.Chmod(address, 0o600); err != nil { // who came before is held to Allow
			return nil, errors.Join(fmt.Errorf("ipc: %w", err), l.Close())
		}
	}
	return &Listener{l: l.(*net.UnixListener), cfg: cfg}, nil
}

func askCredentials(_, _ string, c syscall.RawConn) error {
	var err error
	return errors.Join(c.Control(func(fd uintptr) { err = sys.AskCredentials(int(fd)) }), err)
}

// Accept waits for a connection. After an error that is [ErrRefused] the listener goes on.
func (l *Listener) Accept() (*Conn, error) {
	c, err := l.l.AcceptUnix()
	if err != nil {
		return nil, fmt.Errorf("ipc: %w", err)
	}
	return newConn(c, l.cfg)
}

// Addr is the address.
func (l *Listener) Addr() string { return l.l.Addr().String() }

// Close ends the listening; connections stay.
func (l *Listener) Close() error { return l.l.Close() }
