package asyncfile

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// operations is the length of the differential test; the release test is
// 10,000,000 (make soak-asyncfile).
var operations = flag.Int("operations", testenv.Rounds(200_000, 20_000), "random operations of the differential test")

// model is a file in memory, the oracle: what every backend must do, in the plainest way.
type model struct{ b []byte }

func (m *model) readAt(b []byte, off int64) (int, error) {
	if off >= int64(len(m.b)) {
		if len(b) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	n := copy(b, m.b[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (m *model) writeAt(b []byte, off int64) {
	if end := off + int64(len(b)); len(b) > 0 && end > int64(len(m.b)) {
		m.truncate(end)
	}
	if len(b) > 0 {
		copy(m.b[off:], b)
	}
}

func (m *model) truncate(n int64) {
	if n <= int64(len(m.b)) {
		m.b = m.b[:n:n]
		return
	}
	m.b = append(m.b, make([]byte, n-int64(len(m.b)))...)
}

// subject is one backend under test.
type subject struct {
	name string
	path string
	cfg  Config
	f    File
	mess func(File) // makes its calls short and interrupted
}

func (s *subject) open(t *testing.T) {
	f, err := Open(s.path, s.cfg)
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	if s.mess != nil {
		s.mess(f)
	}
	s.f = f
}

// subjects are the backends that can be had here; the others are named.
func subjects(t *testing.T) []*subject { return subjectsIn(t, "") }

// subjectsIn makes the files of all subjects in a folder; "" is one for each.
func subjectsIn(t *testing.T, dir string) (all []*subject) {
	for _, s := range []*subject{
		{name: "std", cfg: Config{Backend: Std}},
		{name: "std window", cfg: Config{Backend: Std, Buffer: 3000}},
		{name: "mmap", cfg: Config{Backend: Mmap}},
		{name: "mmap shared", cfg: Config{Backend: Mmap, Shared: true, Sequential: true}},
		{name: "uring", cfg: Config{Backend: Uring}},
	} {
		s.cfg.Create = true
		if s.cfg.Backend == Uring && ringed() != nil {
			t.Logf("SKIPPED: %s: %v; run on a kernel that has it and lets this process use it", s.name, ringed())
			continue
		}
		s.path = filepath.Join(dir, s.name)
		if dir == "" {
			s.path = filepath.Join(t.TempDir(), "file")
		}
		s.open(t)
		all = append(all, s)
	}
	return all
}

const (
	maxSize  = 96 << 10
	maxPiece = 8 << 10
)

// TestDifferential does the same random things to every backend and to the model: all answers must
// be the same.
func TestDifferential(t *testing.T) { differ(t, subjects(t), *operations) }

// TestDifferentialWithShortCallsAndInterruptions is the same where every call may do less than
// asked, or nothing.
func TestDifferentialWithShortCallsAndInterruptions(t *testing.T) {
	all := subjects(t)
	rng := rand.New(rand.NewPCG(7, 7))
	for _, s := range all {
		if s.mess = messUp(s.cfg.Backend, rng); s.mess != nil {
			s.mess(s.f)
		}
	}
	differ(t, all, *operations/4)
}

func differ(t *testing.T, all []*subject, n int) {
	if testing.Short() {
		n /= 10
	}
	seed := testenv.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	var m model
	for i := range n {
		if i > 0 && i%1_000_000 == 0 { // of a release test
			t.Logf("%d of %d operations", i, n)
		}
		step := randomStep(rng, int64(len(m.b)))
		wantN, want, wantErr := step.model(&m)
		for _, s := range all {
			got, b, err := step.run(t, s)
			if got != wantN || !sameErr(err, wantErr) || !bytes.Equal(b, want) {
				t.Fatalf("operation %d: %v: %s: %d, %v; the model: %d, %v%s", i, step, s.name, got, err, wantN, wantErr,
					firstDifference(b, want))
			}
		}
	}
	for _, s := range all {
		if err := s.f.Close(); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		if b, err := os.ReadFile(s.path); err != nil || !bytes.Equal(b, m.b) {
			t.Errorf("%s: at the end: %v: %d bytes, the model has %d%s", s.name, err, len(b), len(m.b),
				firstDifference(b, m.b))
		}
		if _, err := s.f.ReadAt(make([]byte, 1), 0); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: read after close: %v", s.name, err)
		}
	}
}

func sameErr(a, b error) bool { return a == b || a != nil && b != nil && errors.Is(a, b) }

func firstDifference(a, b []byte) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("; first difference at byte %d", i)
		}
	}
	return ""
}

// step is one random operation.
type step struct {
	kind string
	off  int64
	n    int
	data []byte
	many []Op // of a batch: disjoint, on top of what is there
}

func (s step) String() string { return fmt.Sprintf("%s of %d at %d", s.kind, s.n, s.off) }

func randomStep(rng *rand.Rand, size int64) step {
	s := step{off: rng.Int64N(size + 200), n: rng.IntN(300)}
	if rng.IntN(10) == 0 {
		s.n = rng.IntN(maxPiece)
	}
	if rng.IntN(4) == 0 {
		s.off = s.off &^ 4095
	}
	switch k := rng.IntN(4000); {
	case k < 2000:
		s.kind = "read"
	case k < 3700:
		s.kind = "write"
		if rng.IntN(50) == 0 { // behind a gap
			s.off = rng.Int64N(maxSize)
		}
		s.off = min(s.off, maxSize-int64(s.n))
		s.data = noise(rng, s.n)
	case k < 3800:
		s.kind, s.n = "size", 0
	case k < 3900:
		s.kind, s.n = "truncate", rng.IntN(maxSize)
	case k < 3904:
		s.kind = "sync"
	case k < 3920:
		s.kind = "reopen"
	case k < 3960:
		s.kind = "batch"
		s.lay(rng, size)
	default:
		s.kind = "concurrent"
		s.lay(rng, size)
	}
	return s
}

// lay cuts the file into stretches, and reads or writes each: whatever the order, the result is
// one.
func (s *step) lay(rng *rand.Rand, size int64) {
	s.n = 0
	for at := int64(0); at < size && len(s.many) < 16; {
		op := Op{Kind: Kind(rng.IntN(2)), Off: at, Buf: noise(rng, int(min(int64(1+rng.IntN(maxPiece)), size-at)))}
		at += int64(len(op.Buf)) + int64(rng.IntN(100))
		s.many = append(s.many, op)
	}
}

func noise(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func (s step) model(m *model) (int, []byte, error) {
	switch s.kind {
	case "read":
		b := make([]byte, s.n)
		n, err := m.readAt(b, s.off)
		return n, b[:n], err
	case "write":
		m.writeAt(s.data, s.off)
		return s.n, nil, nil
	case "size":
		return len(m.b), nil, nil
	case "truncate":
		m.truncate(int64(s.n))
	case "batch", "concurrent":
		var all []byte
		for _, op := range s.many {
			b := bytes.Clone(op.Buf)
			if op.Kind == Read {
				if n, err := m.readAt(b, op.Off); n < len(b) {
					panic(err)
				}
			} else {
				m.writeAt(b, op.Off)
			}
			all = append(all, b...)
		}
		return len(s.many), all, nil
	}
	return 0, nil, nil
}

func (s step) run(t *testing.T, x *subject) (int, []byte, error) {
	switch s.kind {
	case "read":
		b := make([]byte, s.n)
		n, err := x.f.ReadAt(b, s.off)
		return n, b[:n], err
	case "write":
		n, err := x.f.WriteAt(s.data, s.off)
		return n, nil, err
	case "size":
		n, err := x.f.Size()
		return int(n), nil, err
	case "truncate":
		return 0, nil, x.f.Truncate(int64(s.n))
	case "sync":
		return 0, nil, x.f.Sync()
	case "reopen":
		if err := x.f.Close(); err != nil {
			return 0, nil, err
		}
		x.open(t)
	case "batch":
		return apart(func() (int, []byte, error) { return s.batch(x) })
	case "concurrent":
		return apart(func() (int, []byte, error) { return s.concurrent(x) })
	}
	return 0, nil, nil
}

// starts runs each function in a goroutine of its own. Where goroutines were started by that of the
// test, the race detector took longer for each one, since it searches the call histories that it
// has seen: 400,000 operations took eight times as long as 100,000. Those that are started from
// here have few.
var starts = func() chan<- func() {
	todo := make(chan func())
	go func() {
		for f := range todo {
			go f()
		}
	}()
	return todo
}()

// apart does what starts goroutines in one without a history.
func apart(f func() (int, []byte, error)) (n int, b []byte, err error) {
	done := make(chan struct{})
	starts <- func() {
		n, b, err = f()
		close(done)
	}
	<-done
	return n, b, err
}

func (s step) copies() []Op {
	ops := make([]Op, len(s.many))
	for i, op := range s.many {
		ops[i] = op
		ops[i].Buf = bytes.Clone(op.Buf)
	}
	return ops
}

func joined(ops []Op) (all []byte) {
	for _, op := range ops {
		all = append(all, op.Buf...)
	}
	return all
}

func (s step) batch(x *subject) (int, []byte, error) {
	b, err := NewBatch(x.f, BatchConfig{Depth: 5})
	if err != nil {
		return 0, nil, err
	}
	ops := s.copies()
	var done []*Op
	for next := 0; len(done) < len(ops); {
		n, err := b.Submit(ops[next:])
		if err != nil {
			return 0, nil, err
		}
		next += n
		if done, err = b.Reap(done, min(2, b.InFlight())); err != nil {
			return 0, nil, err
		}
	}
	for _, op := range done {
		if op.Err != nil || op.N != len(op.Buf) {
			return 0, nil, fmt.Errorf("%d of %d bytes: %w", op.N, len(op.Buf), op.Err)
		}
	}
	return len(done), joined(ops), b.Close()
}

func (s step) concurrent(x *subject) (int, []byte, error) {
	ops := s.copies()
	errs := make([]error, len(ops))
	var all sync.WaitGroup
	for i := range ops {
		all.Go(func() {
			if op := &ops[i]; op.Kind == Read {
				_, errs[i] = x.f.ReadAt(op.Buf, op.Off)
			} else {
				_, errs[i] = x.f.WriteAt(op.Buf, op.Off)
			}
			if errs[i] == io.EOF { // at the very end both are right
				errs[i] = nil
			}
		})
	}
	all.Wait()
	return len(ops), joined(ops), errors.Join(errs...)
}

// messy is a file whose calls are cut short and interrupted.
type messy struct {
	raw
	mu  sync.Mutex
	rng *rand.Rand
}

// cut gives the length to do, and an error to return with it.
func (m *messy) cut(n int) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch m.rng.IntN(6) {
	case 0:
		return 0, syscall.EINTR
	case 1:
		return 0, syscall.EAGAIN
	case 2, 3:
		return m.rng.IntN(n + 1), nil
	}
	return n, nil
}

func (m *messy) ReadAt(b []byte, off int64) (int, error) {
	n, err := m.cut(len(b))
	if err != nil {
		return 0, err
	}
	got, err := m.raw.ReadAt(b[:n], off)
	return got, err
}

func (m *messy) WriteAt(b []byte, off int64) (int, error) {
	n, err := m.cut(len(b))
	if err != nil {
		return 0, err
	}
	return m.raw.WriteAt(b[:n], off)
}

func (m *messy) Truncate(n int64) error {
	if _, err := m.cut(1); err != nil {
		return err
	}
	return m.raw.Truncate(n)
}
