package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/serial"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

// RecordBytes is how much the device of [Crashes] says at a time.
const RecordBytes = tally128.Size

// Crashes is a device that says numbered records at a rate, and none of them twice, while the
// recorder that listens to it is struck again and again. What the device has said lies in the
// folder of the turn, for who knows what the recorder has stored: [ReadSaid].
type Crashes struct {
	Port   string                   // tcp: the device connects to the recorder; pty: it is behind a serial port
	Rate   float64                  // bytes a second
	Record func(b []byte, n uint64) // writes the record of a number into b, which is RecordBytes long
	// Stores reports whether something is stored in a folder: then the time that counts begins.
	Stores func(folder string) bool
	Strike Strike
}

// Strike is what happens to a recorder: one of its processes gets a signal, and another comes in
// its place; or a command is run, which ends when all is over.
type Strike struct {
	Signal  syscall.Signal
	Target  func(supervisor int) int // the process, found by what a supervisor has started; 0: it is not there now
	Command func(folder string) (argv []string)
}

// Said is what a device has said.
type Said struct {
	Records uint64   `json:"records"` // numbered from 0 on
	From    uint64   `json:"from"`    // the first one of the time that counts
	Unsent  []uint64 `json:"unsent"`  // those that nobody took: the rest was taken by the kernel
	Events  int      `json:"events"`  // how often the recorder was struck
}

const (
	saidFile = "said.json"

	strikeEach   = 500 * time.Millisecond // once in such a time, at a moment of chance
	strikeMargin = 0.1                    // of that, at its begin and its end, in which nothing happens
	strikeTail   = 8                      // the device goes on behind the last one for such a part of a turn
	strikeTick   = 2 * time.Millisecond   // between looks at processes

	answersWithin = 200 * time.Microsecond // a listener of this machine

	storesTick = 20 * time.Millisecond // between looks at a store

	// how long nobody need take anything
	nobodyTakes = 20 * time.Second
)

// ReadSaid is what was said in a turn whose folder that is.
func ReadSaid(folder string) (s Said, err error) {
	b, err := os.ReadFile(filepath.Join(folder, saidFile))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	return s, err
}

// Scene makes the device of one turn, and the folder in which the contestant has what is its own.
func (c Crashes) Scene(b *lab.Bench) (*lab.Scene, error) {
	folder, err := os.MkdirTemp(b.Dir, "crash-")
	if err != nil {
		return nil, err
	}
	d := &device{Crashes: c, folder: folder, chance: rand.New(rand.NewPCG(b.Chance(), 1))}
	at := ""
	switch c.Port {
	case "tcp":
		if at, err = freeAddress(); err == nil {
			d.line = &tcpLine{addr: at}
		}
	case "pty":
		at = filepath.Join(folder, "line")
		d.line, err = newPtyLine(at)
	default:
		err = fmt.Errorf("no port %q; there are tcp and pty", c.Port)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	return &lab.Scene{
		Params: lab.Params{"folder": folder, "at": at}, Load: d.load, Started: func(pid int) { d.supervisor = pid },
		Close: func() error { return errors.Join(d.line.close(), os.RemoveAll(folder)) },
	}, nil
}

// device is what sends in one turn.
type device struct {
	Crashes
	folder     string
	chance     *rand.Rand
	supervisor int // 0: the time that counts has not begun
	line       line
	said       Said
	taken      uint64    // records, by the kernel
	last       time.Time // when it took one
}

// line is how a device reaches a recorder. It is used by one goroutine.
type line interface {
	begin(ctx context.Context, b []byte) error // says the first one, as soon as somebody is there
	say(b []byte) (taken bool, err error)
	end(b []byte) error // says the last one, and waits until all that was taken is read
	close() error
}

// load is the device at work: first for a moment in which nothing happens, then among the strikes,
// and for a while behind the last.
func (d *device) load(ctx context.Context, length time.Duration) (func(lab.Metrics), error) {
	none := func(lab.Metrics) {}
	if d.supervisor == 0 {
		return none, d.begin(ctx)
	}
	d.said.From = d.said.Records
	tail := uint64(length.Seconds()/strikeTail*d.Rate)/RecordBytes + 1
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var over atomic.Bool
	struck := make(chan error, 1)
	go func() {
		err := d.strikeAll(ctx, length)
		over.Store(true)
		struck <- err
	}()
	until := uint64(0)
	err := d.say(ctx, func() bool {
		if !over.Load() {
			return true
		}
		if until == 0 {
			until = d.taken + tail
		}
		return d.taken < until
	})
	stop()
	if err = errors.Join(err, <-struck); err != nil {
		return nil, err
	}
	last := make([]byte, RecordBytes)
	d.Record(last, d.said.Records)
	if err := d.line.end(last); err != nil {
		return nil, err
	}
	d.said.Records++
	b, err := json.Marshal(d.said)
	if err != nil {
		return nil, err
	}
	return none, os.WriteFile(filepath.Join(d.folder, saidFile), b, 0o600)
}

// begin says records until some of them are stored: what a recorder that was killed before has
// never heard of, no start of it could miss.
func (d *device) begin(ctx context.Context) error {
	first := make([]byte, RecordBytes)
	d.Record(first, d.said.Records)
	if err := d.line.begin(ctx, first); err != nil {
		return err
	}
	d.said.Records++
	looked, stores := time.Now(), false
	end := looked.Add(nobodyTakes)
	err := d.say(ctx, func() bool {
		if now := time.Now(); now.Sub(looked) > storesTick {
			stores, looked = d.Stores(d.folder), now
		}
		return !stores && looked.Before(end)
	})
	if err == nil && !stores {
		err = fmt.Errorf("nothing is stored within %v", nobodyTakes)
	}
	return err
}

// say says records while goesOn, each when it is due. Nobody takes one when there is no connection,
// or no room in the port: then its number is left out.
func (d *device) say(ctx context.Context, goesOn func() bool) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	gap := time.Duration(RecordBytes / d.Rate * 1e9)
	start, b := time.Now(), make([]byte, RecordBytes)
	d.last = start
	for due := time.Duration(0); goesOn(); due += gap {
		if wait := due - time.Since(start); wait > 0 {
			sys.Sleep(wait)
		} else if wait < -senderLate {
			start = start.Add(-wait)
		}
		d.Record(b, d.said.Records)
		taken, err := d.line.say(b)
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case taken:
			d.taken++
			d.last = time.Now()
		default:
			d.said.Unsent = append(d.said.Unsent, d.said.Records)
			if time.Since(d.last) > nobodyTakes {
				return fmt.Errorf("nobody has taken what the device says for %v", nobodyTakes)
			}
		}
		d.said.Records++
	}
	return nil
}

// strikeAll strikes at moments of chance in the time of a turn, and returns once the last is over.
func (d *device) strikeAll(ctx context.Context, length time.Duration) error {
	began := time.Now()
	events := max(1, int(length/strikeEach))
	part := length / time.Duration(events)
	for i := range events {
		within := strikeMargin + (1-2*strikeMargin)*d.chance.Float64()
		moment := time.Duration(i)*part + time.Duration(within*float64(part))
		select {
		case <-ctx.Done():
			return nil // whoever sends says why
		case <-time.After(time.Until(began.Add(moment))):
		}
		if err := d.strike(ctx, d.Strike); err != nil {
			return err
		}
	}
	return nil
}

// strike strikes once, and waits until it is over.
func (d *device) strike(ctx context.Context, s Strike) error {
	if s.Command != nil {
		d.said.Events++
		argv := s.Command(d.folder)
		out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out)
		}
		return nil
	}
	target := 0
	err := within(ctx, "the process to strike is not there", func() bool {
		target = s.Target(d.supervisor)
		return target != 0
	})
	if err != nil || ctx.Err() != nil {
		return err
	}
	if err := syscall.Kill(target, s.Signal); err != nil {
		return fmt.Errorf("kill process %d by %v: %w", target, s.Signal, err)
	}
	d.said.Events++
	return within(ctx, "nothing has come in the place of what was struck", func() bool {
		now := s.Target(d.supervisor)
		return now != 0 && now != target
	})
}

// within waits for something that must be so soon.
func within(ctx context.Context, otherwise string, is func() bool) error {
	for end := time.Now().Add(happensWithin); !is(); time.Sleep(strikeTick) {
		if ctx.Err() != nil {
			return nil // whoever sends says why
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s for %v", otherwise, happensWithin)
		}
	}
	return nil
}

// Started is the process that a supervisor has started; 0 if there is none.
func Started(supervisor int) int {
	if children := childrenOf(supervisor); len(children) > 0 {
		return children[len(children)-1]
	}
	return 0
}

// StartedWith is a process that the one which a supervisor has started has started in turn, with a
// variable in its environment; 0 if there is none.
func StartedWith(variable string) func(supervisor int) int {
	return func(supervisor int) int {
		for _, pid := range childrenOf(Started(supervisor)) {
			environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // none if it has ended
			for one := range bytes.SplitSeq(environ, []byte{0}) {
				if string(one) == variable {
					return pid
				}
			}
		}
		return 0
	}
}

// tcpLine is a device that connects to a recorder: again as soon as it has something to say and the
// connection has ended. What it has to say meanwhile nobody takes.
type tcpLine struct {
	addr    string
	conn    *net.TCPConn
	ended   chan struct{} // closed when the other side has ended the connection
	dialing chan net.Conn // has a connection, or nil where nobody listens; nil: none is being made
	giveUp  context.CancelFunc
}

// connected reports whether there is a connection, and begins to make one where there is none. It
// waits for a moment, in which a listener answers: one that answers nothing costs what is due.
func (l *tcpLine) connected() bool {
	if l.conn != nil {
		return true
	}
	if l.dialing == nil {
		ctx, giveUp := context.WithCancel(context.Background())
		made := make(chan net.Conn, 1)
		l.dialing, l.giveUp = made, giveUp
		go func() {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", l.addr)
			if err != nil {
				c = nil
			}
			made <- c
		}()
	}
	select {
	case c := <-l.dialing:
		l.giveUp()
		l.dialing = nil
		if c == nil {
			return false
		}
		ended := make(chan struct{})
		l.conn, l.ended = c.(*net.TCPConn), ended
		go func() {
			_, _ = io.Copy(io.Discard, c) // nobody answers: it only ends
			close(ended)
		}()
		return true
	case <-time.After(answersWithin):
		return false
	}
}

func (l *tcpLine) begin(ctx context.Context, b []byte) error {
	for end := time.Now().Add(nobodyTakes); ; time.Sleep(strikeTick) {
		taken, err := l.say(b)
		switch {
		case taken || err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(end):
			return fmt.Errorf("nobody listens at %s", l.addr)
		}
	}
}

func (l *tcpLine) say(b []byte) (bool, error) {
	if l.conn != nil {
		select {
		case <-l.ended:
			if err := l.hangUp(); err != nil {
				return false, err
			}
		default:
		}
	}
	if !l.connected() {
		return false, nil
	}
	if err := l.conn.SetWriteDeadline(time.Now().Add(nobodyTakes)); err != nil {
		return false, err
	}
	_, err := l.conn.Write(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false, err
	}
	if err != nil { // it has ended: the rest of a record that was begun is said to nobody
		return false, l.hangUp()
	}
	return true, nil
}

// end says that no more comes, and waits for the other side to say so, too: it has read all then.
func (l *tcpLine) end(b []byte) error {
	if taken, err := l.say(b); err != nil || !taken {
		return errors.Join(err, fmt.Errorf("%s does not take the last record", l.addr))
	}
	if err := l.conn.CloseWrite(); err != nil {
		return err
	}
	select {
	case <-l.ended:
		return nil
	case <-time.After(nobodyTakes):
		return fmt.Errorf("%s does not read to the end", l.addr)
	}
}

func (l *tcpLine) hangUp() error {
	if l.conn == nil {
		return nil
	}
	err := l.conn.Close()
	<-l.ended
	l.conn = nil
	return err
}

func (l *tcpLine) close() error {
	if l.dialing != nil {
		l.giveUp()
		if c := <-l.dialing; c != nil {
			return c.Close()
		}
	}
	return l.hangUp()
}

// ptyLine is a device behind a serial port, which does not wait: what the port has no room for is
// said to nobody.
type ptyLine struct{ port *serialtest.Port }

func newPtyLine(link string) (*ptyLine, error) {
	p, err := serialtest.NewPort(link)
	if err != nil {
		return nil, err
	}
	raw, err := serial.Open(link, serial.Config{}) // in raw mode before it is read
	if err == nil {
		err = raw.Close()
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return &ptyLine{p}, nil
}

// begin waits until the record is read: before, a port would fill.
func (l *ptyLine) begin(_ context.Context, b []byte) error { return l.end(b) }

func (l *ptyLine) say(b []byte) (bool, error) {
	n, err := l.port.Write(b)
	return n == len(b), err
}

func (l *ptyLine) end(b []byte) error {
	read, err := l.port.Deliver(b, nobodyTakes)
	if err == nil && !read {
		err = fmt.Errorf("%s is not read to the end", l.port.Link)
	}
	return err
}

func (l *ptyLine) close() error { return l.port.Close() }
