package spool

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ring"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

var realKills = flag.Int("real-kills", 100, "how many processes at either end of spools are killed")

func TestMain(m *testing.M) {
	if name := os.Getenv(childVariable); name != "" {
		fmt.Fprintln(os.Stderr, name+":", children[name]()) // it returns for an error only
		os.Exit(1)
	}
	os.Exit(m.Run())
}

const childVariable = "TALLYWHEEL_SPOOL_TEST"

// children are the processes that are killed. Of descriptor 3 on each has: where it says that it is
// ready; then for each wire the spool, the terminal, the log of bytes, and that of marks.
var children = map[string]func() error{"read": readForEver, "relay": relayForEver, "record": recordForEver}

const wires = 4

type wire struct {
	spool                *Spool
	terminal             int
	bytesFile, marksFile *os.File
}

func inherit() (ready *os.File, all []wire, err error) {
	for i := range wires {
		fd := 4 + 4*i
		s, err := Open(os.NewFile(uintptr(fd), "spool"))
		if err != nil {
			return nil, nil, err
		}
		all = append(all, wire{s, fd + 1, os.NewFile(uintptr(fd+2), "bytes"), os.NewFile(uintptr(fd+3), "marks")})
	}
	return os.NewFile(3, "ready"), all, nil
}

// forEver runs a wire each, until one fails, once all have begun.
func forEver(begin func(w wire) (goOn func() error, err error)) error {
	ready, all, err := inherit()
	if err != nil {
		return err
	}
	failed := make(chan error)
	for _, w := range all {
		goOn, err := begin(w)
		if err != nil {
			return err
		}
		go func() {
			for err := error(nil); ; err = goOn() {
				if err != nil {
					failed <- err
				}
			}
		}()
	}
	if _, err := ready.Write([]byte{1}); err != nil {
		return err
	}
	return <-failed
}

func now() Moment { return Moment{Wall: time.Now().UnixNano()} }

func readForEver() error { return forEver(reads) }

// relayForEver reads into a near spool. It has the far one in place of the log of bytes, and the
// file to run over into in place of that of marks.
func relayForEver() error {
	return forEver(func(w wire) (func() error, error) {
		far, err := Open(w.bytesFile)
		if err != nil {
			return nil, err
		}
		file := killedFile{w.marksFile}
		r, err := NewRelay(w.spool, far, RelayConfig{
			Max: 1 << 20, File: file, Open: func() (SpillFile, error) { return file, nil },
			Failed: func(err error) { panic(err) },
		})
		if err != nil {
			return nil, err
		}
		read, err := reads(w)
		failed := make(chan error, 1)
		go func() { // meanwhile a read may be under way
			for {
				more, err := r.Step()
				if err != nil {
					failed <- err
					return
				}
				if !more {
					time.Sleep(100 * time.Microsecond) // a spool wakes nobody
				}
			}
		}()
		return func() error {
			select {
			case err := <-failed:
				return err
			default:
				return read()
			}
		}, err
	})
}

// killedFile is one that is always there.
type killedFile struct{ *os.File }

func (killedFile) Size() (int64, error) { return 0, nil }
func (killedFile) Room() (int64, error) { return 1 << 40, nil }
func (killedFile) Close() error         { return nil }

func reads(w wire) (func() error, error) {
	if err := syscall.SetNonblock(w.terminal, true); err != nil {
		return nil, err
	}
	p, err := w.spool.Producer(0)
	if err != nil {
		return nil, err
	}
	return func() error {
		if _, _, err := sys.PollIn(w.terminal, -1, time.Second); err != nil {
			return err
		}
		given, err := sys.Waiting(w.terminal)
		if err != nil {
			return err
		}
		_, err = p.ReadWhole(Chunk, max(1, given), now(), w.terminal, sys.ReadRaw)
		switch {
		case errors.Is(err, ErrFull):
			time.Sleep(100 * time.Microsecond) // a spool wakes nobody
			return nil
		case errors.Is(err, syscall.EAGAIN):
			return nil
		}
		return err
	}, nil
}

// recordForEver stores bytes and marks in files, whose sizes say what is stored already.
func recordForEver() error {
	return forEver(func(w wire) (func() error, error) {
		stored, err := w.marksFile.Seek(0, io.SeekEnd)
		if err != nil {
			return nil, err
		}
		c, err := w.spool.Consumer(uint64(stored))
		if err != nil {
			return nil, err
		}
		return func() error { return record(c, w) }, nil
	})
}

func record(c *Consumer, w wire) error {
	before := c.Point()
	m, view, ok, err := c.Next()
	if err != nil {
		return err
	}
	if !ok {
		time.Sleep(100 * time.Microsecond) // a spool wakes nobody
		return save(c)
	}
	if err := appendOnce(w.bytesFile, view, before.Done); err != nil {
		return fmt.Errorf("bytes: %w", err)
	}
	var slot [markBytes]byte
	m.put(slot[:])
	if err := appendOnce(w.marksFile, slot[:], before.Marks*markBytes); err != nil {
		return fmt.Errorf("marks: %w", err)
	}
	c.Done(len(view) / 2)
	if c.Point().Marks%4 == 0 {
		return save(c)
	}
	return nil
}

func save(c *Consumer) error {
	return c.Save(Checkpoint{Point: c.Point(), Sequence: c.Point().Marks * markBytes})
}

// appendOnce stores what a file does not have of the bytes at an offset; what it has must be them.
func appendOnce(f *os.File, b []byte, at uint64) error {
	has := make([]byte, len(b))
	n, err := f.ReadAt(has, int64(at))
	if err != nil && err != io.EOF {
		return err
	}
	if string(has[:n]) != string(b[:n]) {
		return fmt.Errorf("% x at %d come again as % x", has[:n], at, b[:n])
	}
	if size, err := f.Seek(0, io.SeekEnd); err != nil || size < int64(at) {
		return fmt.Errorf("what begins at %d comes after %d (%v)", at, size, err)
	}
	_, err = f.WriteAt(b[n:], int64(at)+int64(n))
	return err
}

// end is a process at one end of all spools.
type end struct {
	name  string
	files []*os.File
	cmd   *exec.Cmd
}

func (e *end) start(t *testing.T) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	e.cmd = exec.Command(os.Args[0])
	e.cmd.Env = append(os.Environ(), childVariable+"="+e.name)
	e.cmd.Stderr = os.Stderr
	e.cmd.ExtraFiles = append([]*os.File{w}, e.files...)
	err = e.cmd.Start()
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, 1)); err != nil {
		t.Fatalf("%s: %v: %v", e.name, err, e.cmd.Wait())
	}
}

func (e *end) kill(t *testing.T) {
	t.Helper()
	_ = e.cmd.Process.Kill()
	_ = e.cmd.Wait()
	if s := e.cmd.ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() {
		t.Fatalf("%s ended by itself: %v", e.name, e.cmd.ProcessState)
	}
}

// TestKilledProcesses kills those who read from terminals and those who record, while bytes come.
// Each byte that a terminal took is recorded, once, or named as uncertain.
func TestKilledProcesses(t *testing.T) { killProcesses(t, false) }

// TestKilledRelays is TestKilledProcesses where who reads has a near spool, and a file, in which
// bytes are that come while nobody records.
func TestKilledRelays(t *testing.T) { killProcesses(t, true) }

func killProcesses(t *testing.T, relayed bool) {
	rng := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	dir := t.TempDir()
	file := func(name string) *os.File {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	var ports [wires]*serialtest.Port
	var all [wires]wire
	var took [wires][]byte
	var files, readers []*os.File
	var nears [wires]*Spool
	for i := range wires {
		p, err := serialtest.NewPort(filepath.Join(dir, fmt.Sprint("port", i)))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		fd, err := sys.OpenTTY(p.Link)
		if err != nil {
			t.Fatal(err)
		}
		terminal := os.NewFile(uintptr(fd), "terminal")
		defer terminal.Close()
		size := 16 << 10
		if relayed {
			size = 8 << 10
		}
		w := wire{create(t, Config{Size: size}), fd, file(fmt.Sprint("bytes", i)), file(fmt.Sprint("marks", i))}
		ports[i], all[i] = p, w
		files = append(files, w.spool.File(), terminal, w.bytesFile, w.marksFile)
		readers = append(readers, files[len(files)-4:]...)
		nears[i] = w.spool
		if relayed {
			nears[i] = create(t, Config{Size: 16 << 10, Room: RelayRoom})
			readers = append(readers[:4*i], nears[i].File(), terminal, w.spool.File(), file(fmt.Sprint("spill", i)))
		}
	}
	feed := func() {
		for i, p := range ports {
			b := make([]byte, 1+rng.IntN(1500))
			for j := range b {
				b[j] = sent(uint64(len(took[i]) + j))
			}
			n, err := p.Write(b)
			if err != nil {
				t.Fatal(err)
			}
			took[i] = append(took[i], b[:n]...)
		}
	}
	ends := [2]*end{{name: "read", files: readers}, {name: "record", files: files}}
	if relayed {
		ends[0].name = "relay"
	}
	for _, e := range ends {
		e.start(t)
		defer func() { _ = e.cmd.Process.Kill(); _ = e.cmd.Wait() }()
	}
	for range *realKills {
		for range rng.IntN(4) {
			feed()
			time.Sleep(time.Duration(rng.IntN(2_000_000)))
		}
		feed()
		time.Sleep(time.Duration(rng.IntN(150_000))) // the moment of the kill: while the bytes are read, if it can be
		e := ends[min(rng.IntN(4), 1)^1]
		e.kill(t)
		if relayed && e == ends[1] {
			for range 16 { // bytes run over
				feed()
				time.Sleep(100 * time.Microsecond) // so that they are read
			}
		}
		e.start(t)
	}
	for i, w := range all { // what is left is read, and recorded
		testenv.Until(t, time.Minute, "a spool recorded to its end", func() bool {
			if !ports[i].Drain(time.Second) || ring.Uint64(nears[i].owner, intentAt+32).Load() != 0 {
				return false // a read may have taken what it has not published
			}
			info, err := w.marksFile.Stat()
			published, _, merr := w.spool.marks()
			read, _, nerr := nears[i].marks()
			return errors.Join(err, merr, nerr) == nil && read == published &&
				uint64(info.Size()) == published*markBytes
		})
	}
	ends[0].kill(t)
	ends[1].kill(t)
	if info, err := os.Stat(filepath.Join(dir, "spill0")); relayed && (err != nil || info.Size() == 0) {
		t.Errorf("nothing has run over: too little to say anything (%v)", err)
	}
	uncertain := 0
	for i, w := range all {
		log, marks := recorded(t, w)
		for _, m := range marks {
			if m.Kind == Lost {
				uncertain += int(m.B)
			}
		}
		if err := account(marks, log, took[i]); err != nil {
			t.Errorf("wire %d: %v", i, err)
		}
	}
	t.Logf("%d kills; up to %d bytes uncertain", *realKills, uncertain)
}

// recorded is what is in the files.
func recorded(t *testing.T, w wire) (log []byte, marks []Mark) {
	t.Helper()
	log, err := os.ReadFile(w.bytesFile.Name())
	raw, merr := os.ReadFile(w.marksFile.Name())
	if err != nil || merr != nil {
		t.Fatal(err, merr)
	}
	for ; len(raw) >= markBytes; raw = raw[markBytes:] {
		marks = append(marks, markOf(raw))
	}
	return log, marks
}
