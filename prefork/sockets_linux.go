package prefork

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// sockets are those of the master: of each slot, in the order of Config.Listen. The master never
// closes them before its end: a socket that is closed resets those who wait at it.
type sockets struct {
	slots  [][]*os.File
	own    []*os.File // of Config.MasterListen
	shared bool       // all slots have the same
}

// listen opens the sockets: those of the workers first, so that a second master is told what to do
// about the first, not that it needs another address of its own.
func listen(cfg *Config) (*sockets, error) {
	s := &sockets{slots: make([][]*os.File, cfg.Workers), shared: cfg.Shared || len(cfg.Listen) == 0}
	err := s.openAll(cfg)
	if err == nil {
		err = s.openOwn(cfg.MasterListen)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// openAll opens, or takes, the sockets of the workers.
func (s *sockets) openAll(cfg *Config) error {
	switch n := len(cfg.Listen); {
	case n > maxPassed:
		return fmt.Errorf("prefork: %d addresses: want at most %d", n, maxPassed)
	case n == 0:
		return s.passed()
	}
	for _, addr := range cfg.Listen {
		if err := s.open(addr, len(cfg.Weights) > 0); err != nil {
			return err
		}
	}
	return nil
}

// openOwn opens the sockets of the master itself.
func (s *sockets) openOwn(addrs []string) error {
	for _, addr := range addrs {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrMasterListen, err)
		}
		fd, err := sys.SocketOf(ln.(*net.TCPListener))
		if err == nil {
			s.own = append(s.own, os.NewFile(uintptr(fd), addr))
		}
		if err = errors.Join(err, ln.Close()); err != nil {
			return err
		}
	}
	return nil
}

// passed takes the sockets that systemd, or a master like it, passes: see sd_listen_fds(3).
func (s *sockets) passed() error {
	fds, forPID := os.Getenv(fdsVariable), os.Getenv("LISTEN_PID")
	n, err := strconv.Atoi(fds)
	switch {
	case fds == "":
		return errors.New("prefork: Config.Listen is empty and no sockets are passed (LISTEN_FDS, LISTEN_PID): name an address, or start this from a socket unit")
	case err != nil || n < 1 || n > maxPassed:
		return fmt.Errorf("prefork: LISTEN_FDS is %q: want 1 to %d sockets", fds, maxPassed)
	case forPID != strconv.Itoa(os.Getpid()):
		return fmt.Errorf("prefork: the sockets of LISTEN_FDS are for process LISTEN_PID=%q, this is %d: have whoever passes them set it (systemd-socket-activate does), or name an address",
			forPID, os.Getpid())
	}
	for i := range n {
		if err := listens(firstFD + i); err != nil {
			return fmt.Errorf("prefork: descriptor %d, number %d of LISTEN_FDS=%d: %w", firstFD+i, i+1, n, err)
		}
		syscall.CloseOnExec(firstFD + i)
		f := os.NewFile(uintptr(firstFD+i), "socket "+strconv.Itoa(i))
		for slot := range s.slots {
			s.slots[slot] = append(s.slots[slot], f)
		}
	}
	return nil
}

// listens is an error if a descriptor is no socket that connections come to.
func listens(fd int) error {
	switch accepts, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN); {
	case errors.Is(err, syscall.EBADF):
		return fmt.Errorf("%w: it was not passed; LISTEN_FDS is too high", err)
	case err != nil:
		return fmt.Errorf("%w; LISTEN_FDS is too high, or something else is passed", err)
	case accepts == 0:
		return errors.New("a socket that does not listen, as one of UDP; pass one of ListenStream=")
	}
	return nil
}

// open opens the sockets of an address. The first is opened as if nobody else might have the port,
// which fails if anybody has: a master that is there already, too. Once it listens the port is
// ours, and it lets the others in. Sockets of multipath TCP, which package net makes where it can,
// cannot be weighed.
func (s *sockets) open(addr string, weighed bool) error {
	var alone net.ListenConfig
	if weighed {
		alone.SetMultipathTCP(false)
	}
	first, err := alone.Listen(context.Background(), "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("prefork: %w; another master or server has it: end that, or pass it a new program by SIGUSR2",
			err)
	} else if err != nil {
		return fmt.Errorf("prefork: %w", err)
	}
	defer first.Close() // add has duplicated it
	if err := s.add(0, first); err != nil {
		return err
	}
	if s.shared {
		for slot := 1; slot < len(s.slots); slot++ {
			s.slots[slot] = append(s.slots[slot], s.slots[0][len(s.slots[0])-1])
		}
		return nil
	}
	reuse := func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) { err = sys.ReusePort(int(fd)) }), err)
	}
	raw, err := first.(*net.TCPListener).SyscallConn()
	if err != nil {
		return err
	}
	if err := reuse("", "", raw); err != nil {
		return fmt.Errorf("prefork: %w; use Config.Shared", err)
	}
	config := alone
	config.Control = reuse
	for slot := 1; slot < len(s.slots); slot++ {
		ln, err := config.Listen(context.Background(), "tcp", first.Addr().String())
		if err != nil {
			return fmt.Errorf("prefork: %w", err)
		}
		err = s.add(slot, ln)
		_ = ln.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// add keeps a duplicate. It is not that of TCPListener.File, whose Fd makes the socket one that
// blocks, for all that have it: a worker that accepts from it would never come back.
func (s *sockets) add(slot int, ln net.Listener) error {
	fd, err := sys.SocketOf(ln.(*net.TCPListener))
	if err == nil {
		s.slots[slot] = append(s.slots[slot], os.NewFile(uintptr(fd), ln.Addr().String()))
	}
	return err
}

// fds are the descriptors of a slot's sockets.
func (s *sockets) fds(slot int) (fds []int) {
	for _, f := range s.slots[slot] {
		fds = append(fds, int(f.Fd()))
	}
	return fds
}

func (s *sockets) close() error {
	if s == nil {
		return nil
	}
	var err error
	for _, f := range s.own {
		err = errors.Join(err, f.Close())
	}
	for slot, files := range s.slots {
		if s.shared && slot > 0 {
			break
		}
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// addresses are those that the sockets have.
func (s *sockets) addresses() (addrs []string) {
	for _, f := range s.slots[0] {
		if ln, err := net.FileListener(f); err == nil {
			addrs = append(addrs, ln.Addr().String())
			_ = ln.Close()
		}
	}
	return addrs
}
