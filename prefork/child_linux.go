package prefork

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// Master and worker talk by packets of JSON over a pair of sockets, which also tells each of the
// other's end.
type packet struct {
	Ready  bool   `json:"ready,omitempty"`  // worker: it can serve
	Takes  bool   `json:"takes,omitempty"`  // … and accept from what is lent
	Count  *Count `json:"count,omitempty"`  // worker, each second and at its end
	Serve  bool   `json:"serve,omitempty"`  // master: begin
	Lend   bool   `json:"lend,omitempty"`   // master: accept from the sockets that come with this, of Slot
	Return bool   `json:"return,omitempty"` // master: no longer, from those of Slot
	Drain  bool   `json:"drain,omitempty"`  // master: end
	Refuse bool   `json:"refuse,omitempty"` // worker: it could not take the sockets of Slot
	Tell   bool   `json:"tell,omitempty"`   // master: send the count
	Kills  int    `json:"kills,omitempty"`  // master: of the slot, when it says Tell; worker: the same, with the count
	Slot   int    `json:"slot,omitempty"`
}

const (
	maxPacket = 4096
	maxPassed = 64 // descriptors in a packet, and addresses of Config.Listen
	sendFor   = 2 * time.Second
)

// wire is one end of the pair.
type wire struct {
	mu   sync.Mutex // one packet after the other
	conn *net.UnixConn
}

// newWire takes f over.
func newWire(f *os.File) (*wire, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("prefork: descriptor %s is %T, no socket pair", f.Name(), c), c.Close())
	}
	return &wire{conn: conn}, nil
}

func (w *wire) send(p packet, fds ...int) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	var rights []byte
	if len(fds) > 0 {
		rights = sys.Rights(fds...)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.conn.SetWriteDeadline(time.Now().Add(sendFor)) // the other may have stopped reading
	_, _, err = w.conn.WriteMsgUnix(text, rights, nil)
	return err
}

// errLostFDs is what is wrong with a packet of which the kernel has not passed all descriptors
// (MSG_CTRUNC): they are too many, or this process may open no more.
var errLostFDs = errors.New("prefork: not all descriptors of a packet could be taken: raise Limit.Files, or the limit of descriptors (LimitNOFILE=, ulimit -n)")

// receive returns the next packet. Descriptors are the caller's; with an error none stays open.
// errLostFDs comes with the rest of the packet, and the next can be received; any other error is
// the other's end.
func (w *wire) receive() (p packet, fds []int, err error) {
	text, oob := make([]byte, maxPacket), make([]byte, 32+4*maxPassed)
	n, k, flags, _, err := w.conn.ReadMsgUnix(text, oob)
	control, controlErr := sys.ReadControl(oob[:max(k, 0)]) // with an error, too: an empty packet counts as the end
	if err = errors.Join(err, controlErr); err == nil {
		err = json.Unmarshal(text[:n], &p)
	}
	if err == nil && flags&sys.TruncatedControl != 0 {
		err = errLostFDs
	}
	if err == nil {
		return p, control.FDs, nil
	}
	closeAll(control.FDs)
	return p, nil, err
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = sys.CloseFD(fd)
	}
}

// Variables that make a process a worker. The sockets come as systemd passes them: LISTEN_FDS of
// them from descriptor 3; the wire is the next.
const (
	slotVariable = "TALLYWHEEL_PREFORK_SLOT"
	fdsVariable  = "LISTEN_FDS"
	firstFD      = 3
)

// masterless are variables that are not for workers, and not for what they start.
var masterless = []string{
	slotVariable, estateVariable, fdsVariable, "LISTEN_PID", "LISTEN_FDNAMES", "LISTEN_PIDFDID",
	"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC",
}

// run implements Run: it finds out which part this process has.
func run(ctx context.Context, cfg Config, worker func(*Worker) error) error {
	if slot, ok := os.LookupEnv(slotVariable); ok {
		return runWorker(slot, cfg, worker)
	}
	return runMaster(ctx, cfg)
}

// inherited takes n sockets over that lie from descriptor 3.
func inherited(n int) (listeners []net.Listener, err error) {
	for i := range n {
		f := os.NewFile(uintptr(firstFD+i), "socket "+strconv.Itoa(i))
		ln, lerr := net.FileListener(f)
		err = errors.Join(err, lerr, f.Close())
		if lerr == nil {
			listeners = append(listeners, ln)
		}
	}
	return listeners, err
}

// runWorker is Run in a worker.
func runWorker(slot string, cfg Config, worker func(*Worker) error) error {
	n, err := strconv.Atoi(slot)
	fds, fdsErr := strconv.Atoi(os.Getenv(fdsVariable))
	if err != nil || fdsErr != nil || fds < 1 || fds > maxPassed {
		return fmt.Errorf("prefork: %s=%s %s=%s: set by the master only; unset them", slotVariable, slot, fdsVariable,
			os.Getenv(fdsVariable))
	}
	for _, name := range masterless {
		_ = os.Unsetenv(name) // what the worker starts is no worker
	}
	listeners, err := inherited(fds)
	if err != nil {
		return fmt.Errorf("prefork: worker %d: %w", n, err)
	}
	link, err := newWire(os.NewFile(uintptr(firstFD+fds), "wire"))
	if err != nil {
		return fmt.Errorf("prefork: worker %d: %w", n, err)
	}
	// The kernel has named it for the descriptor that it was started by.
	_ = os.WriteFile("/proc/self/comm", []byte(commOf(os.Args[0])), 0)
	if cfg.Limit.Files > 0 {
		if err := sys.SetLimit(sys.LimitFiles, cfg.Limit.Files); err != nil {
			return fmt.Errorf("prefork: worker %d: %d descriptors: %w; lower Limit.Files, or raise the hard limit (LimitNOFILE= in a unit)", n, cfg.Limit.Files, err)
		}
	}
	w, err := newWorker(cfg, n, listeners)
	if err != nil {
		return err
	}
	w.master = link
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	go func() {
		<-term
		w.drain()
	}()
	go w.obey(link)
	go w.report(link)
	err = worker(w)
	count := w.count()
	_ = link.send(packet{Count: &count}) // a master that has gone counts no more
	return err
}

func commOf(program string) string { return filepath.Base(program) }

// ready implements toMaster.
func (w *wire) ready(takes bool) error { return w.send(packet{Ready: true, Takes: takes}) }

// obey does what the master says, until that has gone. A worker without one would hold the port
// where the next master wants to listen, so it ends then, with what it has started.
func (w *Worker) obey(link *wire) {
	granted := sync.OnceFunc(func() { close(w.granted) })
	for {
		p, fds, err := link.receive()
		if err != nil && !errors.Is(err, errLostFDs) {
			w.cfg.Log.Error("the worker ends: its master has gone", "slot", w.slot, "error", err)
			_ = sys.KillGroup(os.Getpid()) // the group that the master has made: this process, too
			os.Exit(1)
		}
		switch {
		case p.Serve:
			granted()
		case p.Drain:
			w.drain()
		case p.Return:
			w.giveBack(p.Slot)
		case p.Tell:
			count := w.count()
			_ = link.send(packet{Count: &count, Kills: p.Kills})
		case p.Lend:
			w.borrow(link, p.Slot, fds, err)
			fds = nil
		}
		closeAll(fds)
	}
}

// borrow takes what is lent, all of it: of sockets that nobody accepts from, clients would wait. It
// takes fds over.
func (w *Worker) borrow(link *wire, slot int, fds []int, err error) {
	var listeners []net.Listener
	if err == nil {
		listeners, err = listenersOf(fds)
	}
	if err == nil {
		w.take(slot, listeners)
		return
	}
	w.cfg.Log.Error("sockets that were lent cannot be taken; another worker is asked", "slot", w.slot, "of", slot,
		"error", err)
	_ = link.send(packet{Refuse: true, Slot: slot}) // an error: the master has gone, which the next receive tells
}

// listenersOf makes listeners of descriptors, which it takes over: all of them, or none.
func listenersOf(fds []int) (listeners []net.Listener, err error) {
	for _, fd := range fds {
		f := os.NewFile(uintptr(fd), "lent socket")
		ln, lerr := net.FileListener(f)
		if err = errors.Join(err, lerr, f.Close()); lerr == nil {
			listeners = append(listeners, ln)
		}
	}
	if err != nil {
		for _, ln := range listeners {
			_ = ln.Close()
		}
		return nil, err
	}
	return listeners, nil
}

const reportEvery = time.Second

// report tells the master each second what was done, where that has changed.
func (w *Worker) report(link *wire) {
	var last Count
	for range time.Tick(reportEvery) {
		if now := w.count(); now != last {
			last = now
			if link.send(packet{Count: &now}) != nil {
				return
			}
		}
	}
}

// environment is that of a worker.
func environment(cfg *Config, slot, sockets int, more ...string) []string {
	var env []string
	for _, v := range append(os.Environ(), cfg.Env...) {
		if name, _, _ := strings.Cut(v, "="); !slices.Contains(masterless, name) {
			env = append(env, v)
		}
	}
	env = append(env, more...)
	return append(env, "GOMAXPROCS="+strconv.Itoa(cfg.Procs), slotVariable+"="+strconv.Itoa(slot),
		fdsVariable+"="+strconv.Itoa(sockets))
}

// bare is an environment without the estate that this process itself has taken over.
func bare(env []string) []string {
	return slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, estateVariable+"=") })
}
