package probe

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf/btf"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallywheel/tallywheel/uring"
)

// TestMultishotFromArrival: of a request that completes many times each completion is timed, from
// its arrival on: not the life of the connection, from the request's submission to its end.
func TestMultishotFromArrival(t *testing.T) {
	for _, f := range []uring.Feature{uring.Rings, uring.MultishotReceive} {
		if err := uring.Probe().Has(f); err != nil {
			t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
		}
	}
	for _, old := range []bool{false, true} { // the request, when the probe begins
		for _, segments := range []bool{false, true} {
			for _, arrivals := range []int{0, 1, 50} { // and its end is one, too
				t.Run(fmt.Sprintf("old=%v,segments=%v,arrivals=%d", old, segments, arrivals), func(t *testing.T) {
					multishotFromArrival(t, old, segments, arrivals)
				})
			}
		}
	}
}

func multishotFromArrival(t *testing.T, old, segments bool, arrivals int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	options := Options{PID: os.Getpid(), Sample: 1, Segments: segments}
	var p *Probe
	if !old {
		p = begin(t, Uring, options)
	}
	ring, err := uring.New(uring.Config{Entries: 8, Locked: true})
	if err != nil {
		t.Fatal(err)
	}
	bufs, err := ring.NewBufferRing(8, 64, false)
	if err != nil {
		t.Fatal(err)
	}
	socket := uring.NewFile(pair[0])
	receive, poll := new(uring.Op).RecvEach(socket, bufs), new(uring.Op)
	if err := errors.Join(ring.Push(receive), ring.Submit()); err != nil {
		t.Fatal(err)
	}
	submitted := uint64(1)
	if old {
		p, submitted = begin(t, Uring, options), 0
	}
	own := time.Duration(0)
	after := func(arrives func() error) *uring.Op {
		began := time.Now()
		if err := errors.Join(arrives(), ring.Wait(1)); err != nil {
			t.Fatal(err)
		}
		done := ring.Next()
		own += time.Since(began)
		if done == nil || done.Err() != nil {
			t.Fatalf("%v is complete", done)
		}
		return done
	}
	for range arrivals {
		done := after(func() error { _, err := syscall.Write(pair[1], []byte("x")); return err })
		if piece, ok := done.Picked(); !ok || !done.More() {
			t.Fatal("it does not go on")
		} else {
			piece.Give()
		}
	}
	time.Sleep(20 * time.Millisecond) // the connection rests; that is no latency
	if done := after(func() error { return syscall.Shutdown(pair[1], syscall.SHUT_WR) }); done.More() {
		t.Error("it goes on")
	}
	// a poll is multishot by what it is asked for alone
	if err := errors.Join(ring.Push(poll.PollEach(socket, syscall.EPOLLOUT)), ring.Wait(1)); err != nil {
		t.Fatal(err)
	}
	for cancel := new(uring.Op).Cancel(poll); poll.InFlight() || cancel.InFlight(); {
		if !cancel.InFlight() {
			if err := ring.Push(cancel); err != nil {
				t.Fatal(err)
			}
		}
		if err := ring.Wait(1); err != nil {
			t.Fatal(err)
		}
		for op := ring.Next(); op != nil; op = ring.Next() {
		}
	}
	r := read(t, p)
	var found bool
	for _, h := range r.Latency {
		multishot := h.Op == uring.OpRecv.String() || h.Op == uring.OpPollAdd.String()
		if multishot && !h.Multishot && h.Count > 0 {
			t.Errorf("%+v: a multishot request is timed from its submission", h)
		}
		if h.Op == uring.OpPollAdd.String() && h.Multishot && h.Count != 1 {
			t.Errorf("%+v: want one, and not the cancellation", h)
		}
		if h.Op != uring.OpRecv.String() || !h.Multishot {
			continue
		}
		found = true
		if h.Submitted != submitted || h.Count != uint64(arrivals+1) || h.SumNs == 0 || h.SumNs > uint64(own) {
			t.Errorf("%d submitted, %d timed, %v; want %d, %d, less than %v", h.Submitted, h.Count,
				time.Duration(h.SumNs), submitted, arrivals+1, own)
		}
		if !segments {
			continue
		}
		if len(h.Segments) != 2 || h.Segments[0].Name != ToReaped || h.Segments[0].Count != h.Count ||
			h.Segments[1].Name != FromReady || h.Segments[1].SumNs != h.SumNs {
			t.Errorf("segments %+v of %+v", h.Segments, h)
		} else if sum := h.SumNs + h.Segments[0].SumNs; sum > uint64(own) {
			t.Errorf("%v in the kernel, %v in all", time.Duration(sum), own)
		}
	}
	if !found {
		t.Errorf("no multishot receive in %+v", r)
	}
	registry := prometheus.NewPedanticRegistry() // where two of one name are an error
	registry.MustRegister(p)
	if _, err := registry.Gather(); err != nil {
		t.Error(err)
	}
	if err := errors.Join(ring.Close(), socket.Close(), syscall.Close(pair[1])); err != nil {
		t.Error(err)
	}
}

// TestMultishotOfKernels: older kernels give the tracepoint of completions other arguments.
func TestMultishotOfKernels(t *testing.T) {
	data := &btf.Int{Name: "u64", Size: 8}
	anything := &btf.Pointer{Target: &btf.Void{}}
	for name, c := range map[string]struct {
		third btf.Type
		want  bool
	}{
		"user_data":  {&btf.Typedef{Name: "__u64", Type: data}, true},
		"completion": {&btf.Pointer{Target: &btf.Struct{Name: "io_uring_cqe", Size: 16}}, false},
	} {
		args := []btf.FuncParam{{Type: anything}, {Type: anything}, {Type: anything}, {Type: c.third}}
		flags := &btf.Enum{Size: 4, Values: []btf.EnumValue{{Name: "REQ_F_APOLL_MULTISHOT_BIT", Value: 27}}}
		b, err := btf.NewBuilder([]btf.Type{
			&btf.Typedef{
				Name: "btf_trace_io_uring_complete",
				Type: &btf.Pointer{Target: &btf.FuncProto{Return: &btf.Void{}, Params: args}},
			}, flags,
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := b.Marshal(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		spec, err := btf.LoadSpecFromReader(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		if got := completeHasData(spec); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if got := multishotFlags(spec); got != 1<<27 {
			t.Errorf("%s: flags %#x", name, got)
		}
	}
}

// TestMultishotOfThisKernel: a kernel with multishot receives has the flag that tells.
func TestMultishotOfThisKernel(t *testing.T) {
	if err := uring.Probe().Has(uring.MultishotReceive); err != nil {
		t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
	}
	begin(t, Uring, Options{PID: os.Getpid()}) // that it can be had here
	if v := ofThisKernel(); v["multishot_flags"].(uint64) == 0 {
		t.Errorf("%v", v)
	}
}
