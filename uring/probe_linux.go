package uring

import (
	"errors"
	"fmt"
	"runtime"
	"sort"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Feature is something beyond single operations that a kernel may lack.
type Feature string

// The features that Probe tries, each on a ring of its own.
const (
	Rings              Feature = "io_uring"
	DeferTaskrun       Feature = "deferred task work"
	SubmissionPolling  Feature = "submission polling"
	RegisteredRing     Feature = "registered ring"
	DirectDescriptors  Feature = "table of direct descriptors"
	RegisteredBuffers  Feature = "registered buffers"
	BufferRings        Feature = "ring of buffers"
	IncrementalBuffers Feature = "incremental ring of buffers"
	MultishotAccept    Feature = "multishot accept"
	MultishotReceive   Feature = "multishot receive"
	MultishotTimeout   Feature = "multishot timeout"
	MinTimeout         Feature = "minimum wait"
	MultishotMessages  Feature = "multishot messages"
	ReceiveBundles     Feature = "receive bundles"
	SendBundles        Feature = "send bundles"
	QuietChains        Feature = "quiet chains"
	Resizing           Feature = "resizing of rings"
)

// Support is what this kernel lets this process do. It never changes while a process runs.
type Support struct {
	features map[Feature]error
	opcodes  map[Opcode]error
}

// Has returns nil where the feature works, else a [FeatureError].
func (s *Support) Has(f Feature) error {
	err, known := s.features[f]
	if !known {
		return fmt.Errorf("uring: feature %q is not one that Probe tries", string(f))
	}
	return err
}

// HasOp returns nil where the operation works, else a [FeatureError].
func (s *Support) HasOp(o Opcode) error {
	if err := s.features[Rings]; err != nil {
		return err
	}
	err, known := s.opcodes[o]
	if !known {
		return fmt.Errorf("uring: operation %d is not one of this package", o)
	}
	return err
}

// Features lists what was tried, in a stable order.
func (s *Support) Features() []Feature {
	all := make([]Feature, 0, len(s.features))
	for f := range s.features {
		all = append(all, f)
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	return all
}

// String is a table for people: what works, and what is missing with the kernel that has it.
func (s *Support) String() string {
	var b strings.Builder
	line := func(name string, err error) {
		answer := "yes"
		if err != nil {
			answer = "no: " + err.Error()
		}
		fmt.Fprintf(&b, "%-30s %s\n", name, answer)
	}
	if err := s.features[Rings]; err != nil {
		line(string(Rings), err)
		return b.String()
	}
	for _, f := range s.Features() {
		line(string(f), s.features[f])
	}
	codes := make([]int, 0, len(s.opcodes))
	for o := range s.opcodes {
		codes = append(codes, int(o))
	}
	sort.Ints(codes)
	for _, o := range codes {
		line("operation "+Opcode(o).String(), s.opcodes[Opcode(o)])
	}
	return b.String()
}

// Probe finds out what works here by trying it, once per process: kernels with patches and
// containers with filters make version numbers useless.
var Probe = sync.OnceValue(probe)

func probe() *Support {
	answer := make(chan *Support)
	go func() { // on a thread of its own: rings of one owner belong to their thread
		runtime.LockOSThread()
		s := &Support{features: map[Feature]error{}, opcodes: map[Opcode]error{}}
		s.run()
		runtime.UnlockOSThread()
		answer <- s
	}()
	return <-answer
}

func (s *Support) run() {
	r, err := New(Config{Entries: 8, Locked: true, RegisterRing: true})
	if err != nil {
		for _, f := range []Feature{
			Rings, DeferTaskrun, SubmissionPolling, RegisteredRing, DirectDescriptors, RegisteredBuffers,
			BufferRings, IncrementalBuffers, MultishotAccept, MultishotReceive, MultishotTimeout, MinTimeout,
			MultishotMessages, ReceiveBundles, SendBundles, QuietChains, Resizing,
		} {
			s.features[f] = err
		}
		return
	}
	defer r.Shutdown(nil)
	s.features[Rings] = nil
	flag := func(f Feature, ok bool, since string) {
		s.features[f] = nil
		if !ok {
			s.features[f] = notSupported(string(f), since)
		}
	}
	flag(DeferTaskrun, r.setup&setupDeferTaskrun != 0, "6.1")
	flag(RegisteredRing, r.regular&enterRegisteredRing != 0, "5.18")
	flag(MinTimeout, r.feats&featMinTimeout != 0, "6.12")
	flag(ReceiveBundles, r.feats&featBundle != 0, "6.10")
	flag(SendBundles, r.feats&featBundle != 0, "6.10")
	flag(QuietChains, r.feats&featCQESkip != 0, "5.17")
	if s.features[Resizing] = s.features[DeferTaskrun]; s.features[Resizing] == nil {
		s.features[Resizing] = r.Resize(16, 0)
	}
	s.features[SubmissionPolling] = tryPolling()
	s.features[DirectDescriptors] = r.RegisterFiles(4)
	s.features[RegisteredBuffers] = tryRegister(r)
	s.probeOpcodes(r)

	g, err := r.NewBufferRing(2, 4096, true)
	s.features[BufferRings] = err
	if err != nil {
		s.features[IncrementalBuffers] = notSupported(string(IncrementalBuffers), "6.12")
		s.features[MultishotReceive] = notSupported(string(MultishotReceive), "6.0")
	} else {
		flag(IncrementalBuffers, g.incremental, "6.12")
		s.features[MultishotReceive] = tryReceive(r, g)
	}
	s.features[MultishotMessages] = tryMessages(r)
	s.features[MultishotAccept] = tryAccept(r)
	s.features[MultishotTimeout] = tryMultishot(r, new(Op).Tick(10*time.Millisecond), MultishotTimeout, "6.4")
}

func tryPolling() error {
	r, err := New(Config{Entries: 1, SQPoll: true})
	if err != nil {
		return err
	}
	return r.Shutdown(nil)
}

func tryRegister(r *Ring) error {
	a, err := NewArena(1, 4096)
	if err != nil {
		return err
	}
	return r.RegisterArena(a) // the ring's end ends it, too; one page stays mapped for good
}

// probeOpcodes asks the kernel for its list of operations.
func (s *Support) probeOpcodes(r *Ring) {
	var list struct {
		last, n uint8
		_       uint16
		_       [3]uint32
		ops     [256]struct {
			op, _ uint8
			flags uint16
			_     uint32
		}
	}
	_, e := r.register(registerProbe, unsafe.Pointer(&list), len(list.ops))
	for o, known := range opcodes {
		if o == opMailbox {
			continue
		}
		s.opcodes[o] = nil
		if e != 0 || list.ops[o].flags&1 == 0 {
			s.opcodes[o] = notSupported("operation "+known.name, known.since)
		}
	}
}

// tryMultishot starts an operation and asks whether its first completion says that more will come.
func tryMultishot(r *Ring, op *Op, f Feature, since string) error {
	if err := r.Push(op); err != nil {
		return err
	}
	if err := r.WaitFor(1, time.Second); err != nil {
		return err
	}
	if first := r.Next(); first != nil {
		first.discard() // an accepted connection is a descriptor
	}
	if !op.More() {
		return notSupported(string(f), since)
	}
	return endEach(r, op)
}

// endEach cancels an operation that completes again and again, and waits for its end. A tick that
// has come due and that the kernel has yet to report is in none of its lists: the cancellation
// misses it, ends with ENOENT or EALREADY, and the ticking goes on. Then it is cancelled again.
func endEach(r *Ring, op *Op) error {
	for cancel := new(Op); op.InFlight() || cancel.InFlight(); {
		if op.InFlight() && !cancel.InFlight() {
			if err := r.Push(cancel.Cancel(op)); err != nil {
				return err
			}
		}
		if err := r.WaitFor(1, time.Second); err != nil {
			return err
		}
		for next := r.Next(); next != nil; next = r.Next() {
			next.discard()
		}
	}
	return nil
}

func tryMessages(r *Ring) error {
	g, err := r.NewBufferRing(2, 4096, false)
	if err != nil {
		return notSupported(string(MultishotMessages), "6.0")
	}
	err = trySocket(r, unix.SOCK_DGRAM, MultishotMessages, func(f *File) *Op { return new(Op).RecvMsgEach(f, 0, g) })
	return errors.Join(err, g.Close())
}

func tryReceive(r *Ring, g *BufferRing) error {
	return trySocket(r, unix.SOCK_STREAM, MultishotReceive, func(f *File) *Op { return new(Op).RecvEach(f, g) })
}

// trySocket has an operation receive a byte.
func trySocket(r *Ring, kind int, f Feature, each func(*File) *Op) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("uring: probe: socketpair: %w", err)
	}
	file := NewFile(pair[0])
	defer unix.Close(pair[1])
	defer unix.Close(pair[0]) // and not the file, which refuses while an operation that failed uses it
	if _, err := unix.Write(pair[1], []byte("x")); err != nil {
		return fmt.Errorf("uring: probe: %w", err)
	}
	return tryMultishot(r, each(file), f, "6.0")
}

func tryAccept(r *Ring) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("uring: probe: socket: %w", err)
	}
	f := NewFile(fd)
	defer unix.Close(fd) // as in trySocket
	// Linux gives a Unix socket that is bound to no name an abstract one.
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{}), unix.Listen(fd, 1)); err != nil {
		return fmt.Errorf("uring: probe: listen: %w", err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return fmt.Errorf("uring: probe: %w", err)
	}
	client, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("uring: probe: socket: %w", err)
	}
	defer unix.Close(client)
	if err := unix.Connect(client, name); err != nil {
		return fmt.Errorf("uring: probe: connect: %w", err)
	}
	return tryMultishot(r, new(Op).AcceptEach(f), MultishotAccept, "5.19")
}
