package probe

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tallywheel/tallywheel/uring"
)

// TestSegments: a request that waits, one that is done at once and one that a worker does have the
// segments that are theirs, each as many as there were requests; and together they are no longer
// than the program waited.
func TestSegments(t *testing.T) {
	if err := uring.Probe().Has(uring.Rings); err != nil {
		t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	other := os.NewFile(uintptr(pair[1]), "pair")
	defer other.Close()
	disk, err := syscall.Open(filepath.Join(t.TempDir(), "file"),
		syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	p := begin(t, Uring, Options{PID: os.Getpid(), Sample: 1, Segments: true})
	ring, err := uring.New(uring.Config{Entries: 8, Locked: true})
	if err != nil {
		t.Fatal(err)
	}
	socket, file := uring.NewFile(pair[0]), uring.NewFile(disk)
	const times = 100
	own := map[uring.Opcode]time.Duration{}
	do := func(op *uring.Op) {
		began := time.Now()
		if err := errors.Join(ring.Push(op), ring.Wait(1)); err != nil {
			t.Fatal(err)
		}
		own[op.Code()] += time.Since(began)
		if done := ring.Next(); done != op || done.Err() != nil {
			t.Fatalf("%v completed: %v", done, op.Err())
		}
	}
	buf := uring.Wrap(make([]byte, 8))
	for range times {
		sent := make(chan error, 1)
		go func() { // what it is late by is waited for by the request
			_, err := other.Write([]byte("x"))
			sent <- err
		}()
		do(new(uring.Op).Recv(socket, buf))
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		do(new(uring.Op).Nop())
		do(new(uring.Op).Fsync(file, true))
	}
	r := read(t, p)
	seen := map[string]map[string]Segment{}
	for _, h := range r.Latency {
		parts, sum := map[string]Segment{}, uint64(0)
		for _, s := range h.Segments {
			parts[s.Name] = s
			if sum += s.SumNs; s.Name == ToReaped && s.Count != h.Count {
				t.Errorf("%s: %d of %d are reaped", h.Op, s.Count, h.Count)
			}
		}
		if reaped := parts[ToReaped].SumNs; sum-reaped != h.SumNs {
			t.Errorf("%s: its segments are %d ns until it is complete, it is %d ns", h.Op, sum-reaped, h.SumNs)
		}
		for op, took := range own {
			if op.String() == h.Op && time.Duration(sum) > took {
				t.Errorf("%s: segments of %v, and the program waited %v", h.Op, time.Duration(sum), took)
			}
		}
		seen[h.Op] = parts
	}
	if s := seen[uring.OpNop.String()]; s[AtOnce].Count != times || s[ToQueue].Count != 0 {
		t.Errorf("nops: %+v, want all at once", s)
	}
	if s := seen[uring.OpFsync.String()]; s[ToQueue].Count != times || s[ToComplete].Count != times ||
		s[AtOnce].Count != 0 {
		t.Errorf("syncs: %+v, want all by a worker", s)
	}
	s := seen[uring.OpRecv.String()]
	if n := s[ToQueue].Count + s[AtOnce].Count; n != times || s[ToQueue].Count != s[ToComplete].Count {
		t.Errorf("receives: %+v, want %d", s, times)
	}
	if n := testutil.CollectAndCount(p, "tallywheel_probe_segment_seconds"); n < 5 {
		t.Errorf("%d histograms for Prometheus", n)
	}
	if err := errors.Join(ring.Close(), socket.Close(), file.Close()); err != nil {
		t.Error(err)
	}
}

// TestSegmentsOfOthers: what is not of io_uring has none, and a probe without them tells of none.
func TestSegmentsOfOthers(t *testing.T) {
	for _, k := range []Kind{Net, Sched} {
		if _, err := Start(k, Options{Segments: true}); !errors.Is(err, ErrOptions) ||
			!strings.Contains(err.Error(), string(k)) {
			t.Errorf("segments of %s: %v", k, err)
		}
	}
	if err := uring.Probe().Has(uring.Rings); err != nil {
		t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
	}
	p := begin(t, Uring, Options{PID: os.Getpid(), Sample: 1})
	ring, err := uring.New(uring.Config{Entries: 8})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(ring.Push(new(uring.Op).Nop()), ring.Wait(1)); err != nil {
		t.Fatal(err)
	}
	ring.Next()
	if err := ring.Close(); err != nil {
		t.Error(err)
	}
	if r := read(t, p); len(r.Latency) == 0 || len(r.Latency[0].Segments) > 0 {
		t.Errorf("%+v, want times and no segments", r)
	}
}
