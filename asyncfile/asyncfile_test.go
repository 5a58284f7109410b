package asyncfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"pgregory.net/rapid"
)

func TestChoice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	deep, cached := Std, Std
	if ringed() == nil {
		deep = Uring
	}
	if bits.UintSize == 64 {
		cached = Mmap
	}
	for _, c := range []struct {
		cfg  Config
		want Backend
	}{
		{Config{}, Std},
		{Config{Cached: true}, cached},
		{Config{Cached: true, Write: true}, Std},
		{Config{Depth: 64}, deep},
		{Config{Depth: 64, Cached: true}, cached},
		{Config{Buffer: 8192}, Std},
		{Config{Backend: Mmap, Depth: 9}, Mmap},
	} {
		f, err := Open(path, c.cfg)
		if err != nil {
			t.Errorf("%+v: %v", c.cfg, err)
			continue
		}
		if got := f.Choice(); got.Backend != c.want || got.Why == "" {
			t.Errorf("%+v: chose %+v, want %s", c.cfg, got, c.want)
		}
		f.Close()
	}
}

// What is nothing is refused: it ended the program from a goroutine of the batch.
func TestNothingGiven(t *testing.T) {
	if _, err := NewBatch(nil, BatchConfig{}); err == nil {
		t.Error("a batch of no file")
	}
	for _, s := range subjects(t) {
		b, err := NewBatch(s.f, BatchConfig{Depth: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.SubmitOne(nil); err == nil || b.InFlight() != 0 {
			t.Errorf("%s: no operation: %v", s.name, err)
		}
		op := Op{Kind: Kind(77)}
		err = b.SubmitOne(&op)
		if done, reapErr := b.Reap(nil, b.InFlight()); err == nil &&
			(reapErr != nil || len(done) != 1 || op.Err == nil) {
			t.Errorf("%s: no kind: %v, %v", s.name, op.Err, reapErr)
		}
		if err := errors.Join(b.Close(), b.Close(), s.f.Close()); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		if err := b.SubmitOne(&op); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: after close: %v", s.name, err)
		}
	}
	if l := NewLines(strings.NewReader("a\nb"), math.MaxInt); !l.Next() || string(l.Bytes()) != "a" ||
		len(l.buf) > maxLine {
		t.Errorf("chunks of any size: %q of %d", l.Bytes(), len(l.buf))
	}
	if l := NewLines(nil, 0); l.Next() || l.Err() == nil {
		t.Errorf("lines of nothing: %q, %v", l.Bytes(), l.Err())
	}
	if n, err := Detect(nil).Read(make([]byte, 1)); n != 0 || err == nil || err == io.EOF {
		t.Errorf("what watches nothing: %d, %v", n, err)
	}
	defer func() {
		if p, ok := recover().(string); !ok || p != "asyncfile: Aligned: -1 bytes" {
			t.Errorf("%v", p)
		}
	}()
	Aligned(-1)
}

// TestOneOperationTwice: an operation is submitted again once Reap has returned it. Of one that was
// in flight twice each end was taken for both.
func TestOneOperationTwice(t *testing.T) {
	for _, s := range subjects(t) {
		if err := s.f.Truncate(4096); err != nil {
			t.Fatal(err)
		}
		one, two := batchOf(t, s, 4), batchOf(t, s, 4)
		op := Op{Kind: Read, Buf: make([]byte, 4096)}
		if err := one.SubmitOne(&op); err != nil {
			t.Fatal(err)
		}
		for name, b := range map[string]Batcher{"the same batch": one, "another batch": two} {
			if err := b.SubmitOne(&op); !errors.Is(err, ErrBusy) {
				t.Errorf("%s: again to %s: %v", s.name, name, err)
			}
		}
		copied := Op{Kind: Read, Buf: make([]byte, 4096), taken: op.taken}
		if err := one.SubmitOne(&copied); err != nil {
			t.Errorf("%s: a copy: %v", s.name, err)
		}
		if done, err := one.Reap(nil, 2); err != nil || len(done) != 2 || done[0] == done[1] || op.Err != nil ||
			copied.Err != nil {
			t.Errorf("%s: %v, %v", s.name, done, err)
		}
		ops := make([]Op, 2)
		if n, err := one.Submit(ops); n != 2 || err != nil {
			t.Errorf("%s: %d, %v", s.name, n, err)
		}
		if n, err := one.Submit(ops); n != 0 || !errors.Is(err, ErrBusy) {
			t.Errorf("%s: the same ones: %d, %v", s.name, n, err)
		}
		// what ended with its batch is free
		if err := errors.Join(one.SubmitOne(&op), one.Close(), two.SubmitOne(&op), two.Close(),
			s.f.Close()); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
	}
}

func batchOf(t *testing.T, s *subject, depth int) Batcher {
	t.Helper()
	b, err := NewBatch(s.f, BatchConfig{Depth: depth})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBadConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []Config{
		{Backend: "zip"},
		{Buffer: 1},
		{Buffer: 1<<31 - 1},
		{Buffer: 4096, Backend: Mmap},
		{Direct: true, Backend: Mmap},
		{Direct: true, Buffer: 4096},
		{Depth: -1},
		{Depth: 1 << 20},
	} {
		if f, err := Open(path, cfg); err == nil {
			f.Close()
			t.Errorf("%+v was accepted", cfg)
		}
	}
	for _, p := range []string{path + "-none", filepath.Dir(path), os.DevNull} {
		for _, b := range []Backend{Std, Mmap, Uring} {
			if b == Uring && ringed() != nil {
				continue
			}
			if f, err := Open(p, Config{Backend: b}); err == nil {
				f.Close()
				t.Errorf("%s: %s was opened", b, p)
			}
		}
	}
	if _, err := NewBatch(nil, BatchConfig{Depth: -1}); err == nil {
		t.Error("a batch of depth -1")
	}
}

// failing fails its syncs once, then says that all is well, as a kernel does.
type failing struct {
	raw
	left int
}

var errDisk = errors.New("the disk is on fire")

func (f *failing) Sync() error {
	if f.left--; f.left >= 0 {
		return errDisk
	}
	return f.raw.Sync()
}

func TestNoSyncSucceedsAfterOneThatFailed(t *testing.T) {
	for _, buffer := range []int{0, 4096} {
		f, err := Open(filepath.Join(t.TempDir(), "file"), Config{Create: true, Buffer: buffer})
		if err != nil {
			t.Fatal(err)
		}
		p, ok := f.(*plain)
		if !ok {
			p = f.(*window).plain
		}
		p.f = &failing{p.f, 1}
		if _, err := f.WriteAt([]byte("data"), 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); !errors.Is(err, errDisk) {
			t.Errorf("first: %v", err)
		}
		for range 2 {
			if err := f.Sync(); !errors.Is(err, ErrSyncFailed) || !errors.Is(err, errDisk) {
				t.Errorf("later: %v", err)
			}
		}
		f.Close()
	}
}

// A window that cannot be written keeps what it holds, and says so each time.
func TestWindowKeepsWhatCannotBeWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	f, err := Open(path, Config{Create: true, Buffer: 4096})
	if err != nil {
		t.Fatal(err)
	}
	w := f.(*window)
	good := w.plain.f
	w.plain.f = &full{raw: good}
	if _, err := f.WriteAt([]byte("held"), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); !errors.Is(err, errDisk) {
		t.Errorf("sync: %v", err)
	}
	w.plain.f = good
	if err := f.Sync(); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "held" {
		t.Errorf("%q, %v", b, err)
	}
	f.Close()
}

// full takes one byte and no more.
type full struct{ raw }

func (f *full) WriteAt(b []byte, off int64) (int, error) {
	n, err := f.raw.WriteAt(b[:min(1, len(b))], off)
	return n, errors.Join(err, errDisk)
}

func TestLines(t *testing.T) {
	testenv.Check(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.SampledFrom([]byte("ab\n"))).Draw(t, "text")
		size := rapid.IntRange(1, 20).Draw(t, "chunk")
		want := strings.Split(string(text), "\n")
		if want[len(want)-1] == "" {
			want = want[:len(want)-1]
		}
		lines := NewLines(bytes.NewReader(text), size)
		var got []string
		for lines.Next() {
			got = append(got, string(lines.Bytes()))
			if at := lines.Offset(); !strings.HasPrefix(string(text[at:]), string(lines.Bytes())) ||
				at > 0 && text[at-1] != '\n' {
				t.Fatalf("line %d is not at %d", len(got), at)
			}
		}
		if lines.Err() != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%q, %v; want %q", got, lines.Err(), want)
		}
		if lines.Next() {
			t.Fatal("a line after the end")
		}
	})
}

func TestLinesOverEveryBackend(t *testing.T) {
	var text strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&text, "line %d%s\n", i, strings.Repeat(".", i%90))
	}
	for _, s := range subjects(t) {
		if _, err := s.f.WriteAt([]byte(text.String()), 0); err != nil {
			t.Fatal(err)
		}
		lines, n := NewLines(s.f, 4096), 0
		for lines.Next() {
			if !strings.HasPrefix(string(lines.Bytes()), fmt.Sprintf("line %d", n)) {
				t.Fatalf("%s: line %d is %q", s.name, n, lines.Bytes())
			}
			n++
		}
		if n != 50_000 || lines.Err() != nil {
			t.Errorf("%s: %d lines, %v", s.name, n, lines.Err())
		}
		s.f.Close()
	}
}

type brokenReader struct{ bytes.Reader }

func (b *brokenReader) ReadAt(p []byte, off int64) (int, error) {
	n, err := b.Reader.ReadAt(p[:min(len(p), 10)], off)
	return n, errors.Join(err, errDisk)
}

func TestLinesEndWithTheError(t *testing.T) {
	lines := NewLines(&brokenReader{*bytes.NewReader([]byte("one\ntwo\nthree\nfour\n"))}, 0)
	n := 0
	for lines.Next() {
		n++
	}
	if n != 2 || !errors.Is(lines.Err(), errDisk) {
		t.Errorf("%d lines, %v", n, lines.Err())
	}
	long := NewLines(zeros{}, 1<<20)
	if long.Next() || long.Err() == nil {
		t.Errorf("a line without an end: %v", long.Err())
	}
}

type zeros struct{}

func (zeros) ReadAt(b []byte, _ int64) (int, error) { clear(b); return len(b), nil }

func TestDetect(t *testing.T) {
	text := []byte(strings.Repeat("2026-11-20T07:30:00Z INFO value=17\n", 30_000))
	binary := bytes.Repeat([]byte{0xa5, 0x5a, 0, 1, 2, 0x0a, 0xff, 0x80}, 100_000)
	for _, c := range []struct {
		name string
		data []byte
		use  func(io.Reader)
		want []string
	}{
		{"a scanner that makes strings", text, func(r io.Reader) {
			for s := bufio.NewScanner(r); s.Scan(); {
				_ = strings.ToUpper(s.Text())
			}
		}, []string{"bufio.NewReaderSize", "allocations"}},
		{"a scanner over binary data", binary, func(r io.Reader) {
			for s := bufio.NewScanner(r); s.Scan(); {
				_ = s.Bytes()
			}
		}, []string{"binary"}},
		{
			"as it should be", text,
			func(r io.Reader) { io.CopyBuffer(struct{ io.Writer }{io.Discard}, r, make([]byte, 64<<10)) }, nil,
		},
		{"one byte at a time", text[:100_000], func(r io.Reader) {
			for b := make([]byte, 1); ; {
				if _, err := r.Read(b); err != nil {
					return
				}
			}
		}, []string{"reads of 1 bytes"}},
	} {
		d := Detect(struct{ io.Reader }{bytes.NewReader(c.data)})
		c.use(d)
		r := d.Report()
		if len(c.want) == 0 && len(r.Advice) > 0 {
			t.Errorf("%s: %v", c.name, r)
		}
		for _, w := range c.want {
			if !strings.Contains(r.String(), w) {
				t.Errorf("%s: no advice with %q in %v", c.name, w, r)
			}
		}
	}
	if r := Detect(strings.NewReader("")).Report(); r.Reads != 0 || r.ReadsPerMB != 0 {
		t.Errorf("nothing: %+v", r)
	}
}

func TestAligned(t *testing.T) {
	for n := range 5000 {
		if b := Aligned(n); len(b) != n || n > 0 && aligned("", "", b[:n&^(Align-1)], 0) != nil {
			t.Fatal(n)
		}
	}
}
