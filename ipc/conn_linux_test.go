package ipc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"pgregory.net/rapid"
)

// TestMain makes this binary the process of a test where the environment names one.
func TestMain(m *testing.M) {
	if name := os.Getenv(childVariable); name != "" {
		if err := children[name](); err != nil {
			fmt.Fprintln(os.Stderr, name+":", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const childVariable = "TALLYWHEEL_IPC_TEST"

// children are what other processes do in tests. Descriptor 3 is their connection.
var children = map[string]func() error{
	"echo": echo, "few": fewDescriptors, "produce": produceForEver, "consume": consumeForEver, "answer": answer,
}

// child starts one, which is killed at the end of the test at the latest.
func child(t testing.TB, name string, files ...*os.File) (*exec.Cmd, *Conn) {
	t.Helper()
	ours, theirs, err := Pair(ConnConfig{MaxFiles: MaxFiles})
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+name)
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = append([]*os.File{theirs}, files...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = ours.Close()
	})
	return cmd, ours
}

func link() (*Conn, error) { return Inherit(os.NewFile(3, "link"), ConnConfig{MaxFiles: MaxFiles}) }

// echo sends back what it gets.
func echo() error {
	c, err := link()
	if err != nil {
		return err
	}
	for {
		m, err := c.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = c.Send(m)
		}
		if err != nil {
			return err
		}
		_ = m.Close()
	}
}

// descriptors are those that this process has open.
func descriptors(t testing.TB) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// leaksNothing fails the test if do leaves a descriptor or a mapping of shared memory behind.
func leaksNothing(t *testing.T, do func()) {
	t.Helper()
	mappings := func() int {
		b, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Count(b, []byte("memfd:"))
	}
	do() // once before: what the runtime opens for itself stays
	fds, maps := descriptors(t), mappings()
	for range 3 {
		do()
	}
	testenv.Until(t, 10*time.Second, "all descriptors and mappings given back", func() bool {
		return descriptors(t) <= fds && mappings() <= maps
	})
}

// both is a connection with both ends here.
func both(t testing.TB, cfg ConnConfig) (a, b *Conn) {
	t.Helper()
	a, theirs, err := Pair(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if b, err = Inherit(theirs, cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

func TestMessagesAndFilesCrossProcesses(t *testing.T) {
	leaksNothing(t, func() {
		cmd, c := child(t, "echo")
		if c.Peer().PID != os.Getpid() {
			t.Errorf("the pair was made by %v, not by this process", c.Peer())
		}
		var files []File
		for i := range 20 {
			f, err := os.Create(filepath.Join(t.TempDir(), "f"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			fmt.Fprintf(f, "this is file %d", i)
			files = append(files, File{Name: fmt.Sprintf("name %d", i%3), File: f}) // names need not be unique
		}
		if err := c.Send(Message{Data: []byte("with files"), Files: files}); err != nil {
			t.Fatal(err)
		}
		m, err := c.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if string(m.Data) != "with files" || len(m.Files) != len(files) || m.From.PID != cmd.Process.Pid ||
			m.From.UID != os.Getuid() {
			t.Errorf("got %q with %d files from %v, want %d files from pid %d", m.Data, len(m.Files), m.From,
				len(files), cmd.Process.Pid)
		}
		for i, f := range m.Files {
			text, err := io.ReadAll(io.NewSectionReader(f, 0, 100))
			if want := fmt.Sprintf("this is file %d", i); f.Name != files[i].Name || string(text) != want ||
				err != nil {
				t.Errorf("file %d is %q: %q, %v; want %q: %q", i, f.Name, text, err, files[i].Name, want)
			}
			if flags, _, _ := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), syscall.F_GETFD,
				0); flags&syscall.FD_CLOEXEC == 0 {
				t.Errorf("file %d is open after an exec", i)
			}
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if err := c.Send(Message{}); err != nil {
			t.Fatal(err)
		}
		if m, err := c.Receive(); err != nil || len(m.Data) != 0 || len(m.Files) != 0 {
			t.Errorf("an empty message comes as %+v, %v", m, err)
		}
		_ = c.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the other process: %v", err)
		}
	})
}

// TestWhatBreaksARuleLeaksNothing sends by the bare socket what Send would not.
func TestWhatBreaksARuleLeaksNothing(t *testing.T) {
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	null := int(file.Fd())
	rights := func(n int) []byte {
		fds := make([]int, n)
		for i := range fds {
			fds[i] = null
		}
		return sys.Rights(fds...)
	}
	three := func(n int) []byte { // three names and n bytes
		p, err := appendPacket(nil, []string{"a", "b", "c"}, make([]byte, n))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, test := range []struct {
		name   string
		packet []byte
		oob    []byte
		want   string
	}{
		{"nothing but files", nil, rights(3), "another protocol"},
		{"one byte", []byte{1}, rights(1), "another protocol"},
		{"another version", []byte{9, 0}, rights(1), "version 9"},
		{"fewer names", []byte{1, 0}, rights(2), "2 files that names 0"},
		{"more names", three(0), rights(2), "2 files that names 3"},
		{"cut names", []byte{1, 1, 200, 'x'}, rights(1), "within its names"},
		{"a bad name", []byte{1, 1, 1, ':'}, rights(1), "without colons"},
		{"no name", []byte{1, 1, 0}, rights(1), "want 1 to 255"},
		{"too many names", []byte{1, 255}, nil, "more than 253"},
		{
			"too many files", append([]byte{1, 5}, bytes.Repeat([]byte{1, 'x'}, 5)...), rights(5),
			"see ConnConfig.MaxFiles",
		},
		{"too long", three(2000), rights(3), "see ConnConfig.MaxData"},
		{"far too long", three(20_000), rights(3), "see ConnConfig.MaxData"},
		{"too long without names", append([]byte{1, 0}, make([]byte, 1100)...), nil, "see ConnConfig.MaxData"},
	} {
		t.Run(test.name, func(t *testing.T) {
			leaksNothing(t, func() {
				a, b := both(t, ConnConfig{MaxData: 1000, MaxFiles: 4})
				if _, _, err := a.c.WriteMsgUnix(test.packet, test.oob, nil); err != nil {
					t.Fatal(err)
				}
				m, err := b.Receive()
				if err == nil || !strings.Contains(err.Error(), test.want) || len(m.Files) != 0 {
					t.Errorf("got %+v, %v; want an error with %q", m, err, test.want)
				}
				if err := a.Send(Message{Data: []byte("after")}); err != nil {
					t.Fatal(err)
				}
				if m, err := b.Receive(); err != nil || string(m.Data) != "after" {
					t.Errorf("the next message comes as %+v, %v", m, err)
				}
				_, _ = a.Close(), b.Close()
			})
		})
	}
}

// fewDescriptors has room for less than half of the files that come.
func fewDescriptors() error {
	c, err := link()
	if err != nil {
		return err
	}
	if err := c.Send(Message{}); err != nil {
		return err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 40, Max: 40}); err != nil {
		return err
	}
	before, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	m, err := c.Receive()
	if err == nil || !strings.Contains(err.Error(), "raise the limit") {
		return fmt.Errorf("got %d files, %v; want an error that says that there are no descriptors left", len(m.Files),
			err)
	}
	after, err := os.ReadDir("/proc/self/fd")
	if err != nil || len(after) != len(before) {
		return fmt.Errorf("%d descriptors were open before, %d are after: %w", len(before), len(after), err)
	}
	return c.Send(Message{Data: []byte("right")})
}

func TestFilesThatFindNoDescriptorsAreAnError(t *testing.T) {
	_, c := child(t, "few")
	if _, err := c.Receive(); err != nil {
		t.Fatal(err)
	}
	files := make([]File, 100)
	for i := range files {
		files[i] = File{Name: "null", File: os.Stderr}
	}
	if err := c.Send(Message{Files: files}); err != nil {
		t.Fatal(err)
	}
	if m, err := c.Receive(); err != nil || string(m.Data) != "right" {
		t.Errorf("the other process says %q, %v", m.Data, err)
	}
}

func TestWhoIsNotAllowedIsRefused(t *testing.T) {
	leaksNothing(t, func() {
		never := ConnConfig{Allow: func(c Credentials) error { return fmt.Errorf("uid %d is a stranger", c.UID) }}
		address := filepath.Join(t.TempDir(), "socket")
		l, err := Listen(address, never)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(address); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the socket's file: %v, %v; want mode 0600", info, err)
		}
		if _, err := Listen(address, never); err == nil || !strings.Contains(err.Error(), "remove it") {
			t.Errorf("a second listener: %v", err)
		}
		c, err := Dial(context.Background(), address, ConnConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Accept(); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "stranger") {
			t.Errorf("Accept: %v, want ErrRefused and why", err)
		}
		if _, err := c.Receive(); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("who was refused receives %v, want the end", err)
		}
		_, _ = c.Close(), l.Close()
		if _, err := os.Stat(address); err == nil {
			t.Error("the socket's file is left behind")
		}

		a, b := both(t, ConnConfig{}) // who was allowed to connect, and is no more
		b.cfg.Allow = never.Allow
		if err := a.Send(Message{Files: []File{{"x", os.Stderr}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Receive(); !errors.Is(err, ErrRefused) {
			t.Errorf("Receive: %v, want ErrRefused", err)
		}
		_, _ = a.Close(), b.Close()
	})
}

func TestConnectionsByAddress(t *testing.T) {
	l, err := Listen(fmt.Sprintf("@tallywheel-test-%d", os.Getpid()), ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := Dial(t.Context(), l.Addr(), ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Send(Message{Data: []byte("before it is accepted")}); err != nil { // has credentials all the same
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if m, err := s.Receive(); err != nil || string(m.Data) != "before it is accepted" || m.From.PID != os.Getpid() {
		t.Errorf("got %+v, %v", m, err)
	}
	if s.Peer().PID != os.Getpid() || c.Peer().PID != os.Getpid() {
		t.Errorf("the peers are %v and %v", s.Peer(), c.Peer())
	}
	if err := s.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Receive(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	p, err := s.PeerProcess()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	select {
	case <-p.Done():
		t.Error("this process is said to have ended")
	default:
	}
}

func TestSendersDoNotMix(t *testing.T) {
	a, b := both(t, ConnConfig{})
	var senders sync.WaitGroup
	for s := range 4 {
		senders.Go(func() {
			for range 200 {
				if err := a.Send(Message{Data: bytes.Repeat([]byte{byte(s)}, 100+s)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 800 {
		m, err := b.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if s := m.Data[0]; len(m.Data) != 100+int(s) || !bytes.Equal(m.Data, bytes.Repeat([]byte{s}, len(m.Data))) {
			t.Fatalf("a message of %d bytes is mixed", len(m.Data))
		}
	}
	senders.Wait()
}

func TestTheEndOfAProcessIsSeen(t *testing.T) {
	leaksNothing(t, func() {
		cmd, c := child(t, "echo")
		p, err := OpenProcess(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		// The descriptor of it, passed there and back, is as good.
		if err := c.Send(Message{Files: []File{{"process", p.File()}}}); err != nil {
			t.Fatal(err)
		}
		m, err := c.Receive()
		if err != nil {
			t.Fatal(err)
		}
		passed, err := ProcessOf(m.Files[0].File)
		if err != nil {
			t.Fatal(err)
		}
		gone, err := OpenProcess(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		_ = gone.Close()
		select {
		case <-p.Done():
			t.Fatal("it is said to have ended")
		default:
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-p.Done() // before it is waited for
		<-passed.Done()
		if _, err := c.Receive(); !errors.Is(err, io.EOF) {
			t.Errorf("its connection: %v, want io.EOF", err)
		}
		_ = cmd.Wait()
		_, _, _ = p.Close(), passed.Close(), c.Close()
		if late, err := OpenProcess(cmd.Process.Pid); err == nil {
			_ = late.Close()
			t.Error("a process that has gone is opened")
		}
	})
}

func TestWhatIsNoProcessOrNoSocketIsAnError(t *testing.T) {
	leaksNothing(t, func() {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ProcessOf(r); err == nil {
			t.Error("a pipe is taken for a process")
		}
		if _, err := Inherit(r, ConnConfig{}); err == nil {
			t.Error("a pipe is taken for a connection")
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		f, err := l.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Inherit(f, ConnConfig{}); err == nil {
			t.Error("a TCP listener is taken for a connection")
		}
		if _, _, err := Pair(ConnConfig{MaxFiles: 300}); err == nil {
			t.Error("300 files are allowed")
		}
		_, _, _, _ = r.Close(), w.Close(), l.Close(), f.Close()
	})
}

// TestAddressesThatCannotBe: none, and one that is longer than the kernel's.
func TestAddressesThatCannotBe(t *testing.T) {
	long := strings.Repeat("x", 107)
	for _, address := range []string{"", "@" + long, filepath.Join(t.TempDir(), long)} {
		l, listenErr := Listen(address, ConnConfig{})
		if listenErr == nil {
			_ = l.Close()
		}
		_, dialErr := Dial(t.Context(), address, ConnConfig{})
		want := fmt.Sprintf("%d bytes: want 1 to 107", len(address))
		for _, err := range []error{listenErr, dialErr} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v; want %s", err, want)
			}
		}
	}
	l, err := Listen("@"+strings.Repeat("x", 106), ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}

func TestSendRefusesWhatNobodyWouldTake(t *testing.T) {
	a, _ := both(t, ConnConfig{})
	for name, m := range map[string]Message{
		"too long":       {Data: make([]byte, MaxData+1)},
		"too many files": {Files: make([]File, MaxFiles+1)},
		"no name":        {Files: []File{{"", os.Stderr}}},
		"a colon":        {Files: []File{{"a:b", os.Stderr}}},
		"no file":        {Files: []File{{"a", nil}}},
	} {
		if err := a.Send(m); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestPacketsComeBack(t *testing.T) {
	testenv.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(rapid.StringMatching(`[ -9;-~]{1,40}`), 0, 20).Draw(t, "names")
		data := rapid.SliceOf(rapid.Byte()).Draw(t, "data")
		p, err := appendPacket(nil, names, data)
		if err != nil {
			t.Fatal(err)
		}
		gotNames, gotData, err := parsePacket(p)
		if err != nil || fmt.Sprint(gotNames) != fmt.Sprint(names) || !bytes.Equal(gotData, data) {
			t.Fatalf("%q %x comes back as %q %x, %v", names, data, gotNames, gotData, err)
		}
	})
}
