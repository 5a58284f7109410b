package recorder

import (
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/isolate"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/ipc"
)

// shelf acts as the keeper of a recorder and a reader that run in this process. A test sees each
// message before the shelf knows of it.
type shelf struct {
	t       *testing.T
	sees    func(shelfWord) // of the recorder's messages; nil: nobody looks
	reading sync.WaitGroup

	mu      sync.Mutex
	entries []shelfEntry
	to      [2]*ipc.Conn // recorder, reader
}

type shelfEntry struct {
	name  string
	data  json.RawMessage
	files []*os.File
}

// shelfWord is a message, as package isolate has it.
type shelfWord struct {
	Op   string          `json:"op"`
	Name string          `json:"name,omitempty"`
	As   string          `json:"as,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
}

// startOnShelf starts a recorder with `isolate: process`, and a reader. stop ends both.
func startOnShelf(t *testing.T, dir string, sees func(shelfWord), sources ...config.Source) (g *Recorder, s *shelf,
	stop func(),
) {
	t.Helper()
	s = &shelf{t: t, sees: sees}
	var links [2]*isolate.Link
	for i := range links {
		ours, theirs, err := ipc.Pair(ipc.ConnConfig{MaxData: 128 << 10, MaxFiles: 4})
		if err != nil {
			t.Skipf("SKIPPED: no sockets of AF_UNIX: %v; run this where a process may make them", err)
		}
		conn, err := ipc.Inherit(theirs, ipc.ConnConfig{MaxData: 128 << 10, MaxFiles: 4, Bare: true})
		if err != nil {
			t.Fatal(err)
		}
		s.to[i], links[i] = ours, isolate.NewLink(conn)
	}
	s.send(0, shelfWord{Op: "ready"}, nil)
	s.reading.Go(func() { s.listen(0) })
	g, err := StartIsolated(config.Config{
		Log: config.Log{Dir: dir, Segment: 1 << 20}, API: config.API{Listen: "127.0.0.1:0"}, Isolate: "process",
		Sources: sources,
	}, slog.New(slog.DiscardHandler), links[0])
	if err != nil {
		t.Fatal(err)
	}
	s.send(1, shelfWord{Op: "prepare", Data: json.RawMessage("{}")}, nil)
	s.mu.Lock()
	for _, e := range s.entries {
		s.send(1, shelfWord{Op: "put", Name: e.name, Data: e.data}, e.files)
	}
	s.send(1, shelfWord{Op: "ready"}, nil)
	s.reading.Go(func() { s.listen(1) })
	s.mu.Unlock()
	read := make(chan error, 1)
	go func() { read <- isolate.ReadPorts(links[1], slog.New(slog.DiscardHandler)) }()
	return g, s, func() {
		t.Helper()
		if _, err := g.Stop("test"); err != nil {
			t.Error(err)
		}
		for _, c := range s.to {
			_ = c.Close()
		}
		if err := <-read; err != nil {
			t.Error(err)
		}
		s.reading.Wait()
	}
}

func (s *shelf) send(to int, m shelfWord, files []*os.File) {
	b, err := json.Marshal(m)
	if err != nil {
		s.t.Error(err)
	}
	out := ipc.Message{Data: b}
	for _, f := range files {
		out.Files = append(out.Files, ipc.File{Name: "entry", File: f})
	}
	_ = s.to[to].Send(out) // an error: that one has ended
}

// listen does what one of the two says, until that ends.
func (s *shelf) listen(from int) {
	for {
		in, err := s.to[from].Receive()
		if err != nil {
			return
		}
		var m shelfWord
		if err := json.Unmarshal(in.Data, &m); err != nil {
			s.t.Error(err)
			return
		}
		var files []*os.File
		for _, f := range in.Files {
			files = append(files, f.File)
		}
		if from == 0 && s.sees != nil {
			s.sees(m)
		}
		s.hear(from, m, files)
	}
}

func (s *shelf) hear(from int, m shelfWord, files []*os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m.Op {
	case "put", "drop":
		s.place(m, files)
		s.send(1-from, m, files)
	case "echo":
		s.send(from, m, nil)
	case "accept":
		answer := shelfWord{Op: "accept", Name: m.As}
		if conn, peer := s.accept(m.Name); conn != nil {
			answer.Data, _ = json.Marshal(peer)
			files = []*os.File{conn}
			s.place(shelfWord{Op: "put", Name: m.As, Data: answer.Data}, files)
		}
		s.send(from, answer, files)
	}
}

// place puts an entry on the shelf, or takes it off. mu is held.
func (s *shelf) place(m shelfWord, files []*os.File) {
	s.entries = slices.DeleteFunc(s.entries, func(e shelfEntry) bool {
		if e.name == m.Name {
			for _, f := range e.files {
				_ = f.Close()
			}
		}
		return e.name == m.Name
	})
	if m.Op == "put" {
		s.entries = append(s.entries, shelfEntry{m.Name, m.Data, files})
	}
}

// address is where a source listens, once it does.
func (s *shelf) address(source string) (addr string) {
	s.t.Helper()
	testenv.Until(s.t, 20*time.Second, source+" listens", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, e := range s.entries {
			if e.name == isolate.ListenerOf(source) {
				l, err := net.FileListener(e.files[0])
				if err != nil {
					s.t.Fatal(err)
				}
				defer l.Close()
				addr = l.Addr().String()
			}
		}
		return addr != ""
	})
	return addr
}

// accept takes a connection that waits at the listener of a source; nil: none does. mu is held.
func (s *shelf) accept(source string) (conn *os.File, peer string) {
	for _, e := range s.entries {
		if e.name != isolate.ListenerOf(source) {
			continue
		}
		raw, err := e.files[0].SyscallConn()
		if err != nil {
			s.t.Error(err)
			return nil, ""
		}
		_ = raw.Control(func(fd uintptr) {
			if n, from, err := sys.Accept(int(fd)); err == nil {
				conn, peer = os.NewFile(uintptr(n), "connection"), sys.PeerName(n, from)
			}
		})
	}
	return conn, peer
}
