package gofacts

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

// blockedLimit is how long something is waited for that will not happen.
const blockedLimit = 200 * time.Millisecond

// readLockTwice asks whether who holds an RWMutex for reading may take it for reading again, while
// another one waits to write.
func readLockTwice(*contestant.Turn) (contestant.Finding, error) {
	var mu sync.RWMutex
	mu.RLock()
	go func() {
		mu.Lock()
		defer mu.Unlock()
	}()
	for mu.TryRLock() { // until the writer waits
		mu.RUnlock()
		runtime.Gosched()
	}
	again := make(chan bool)
	go func() { mu.RLock(); close(again) }()
	select {
	case <-again:
		return contestant.Finding{Yes: true, Text: "a second RLock was granted while a writer waits"}, nil
	case <-time.After(blockedLimit):
	}
	mu.RUnlock() // lets both go on
	<-again
	return contestant.Finding{
		Yes:  false,
		Text: fmt.Sprintf("while a writer waits, a second RLock was not granted within %v, until the first was given back: who held both would wait for ever", blockedLimit),
	}, nil
}

// endless is a text without an end.
type endless struct{ line []byte }

func (e endless) Read(b []byte) (n int, err error) {
	for n < len(b) {
		n += copy(b[n:], e.line)
	}
	return n, nil
}

func bufferGrows(*contestant.Turn) (contestant.Finding, error) {
	r := bufio.NewReaderSize(endless{append(bytes.Repeat([]byte("x"), 99), '\n')}, 64<<10)
	before := r.Size()
	const read = 1 << 20
	for range read {
		if _, err := r.ReadSlice('\n'); err != nil {
			return contestant.Finding{}, err
		}
	}
	return contestant.Finding{
		Yes: r.Size() > before,
		Text: fmt.Sprintf("after %d lines by ReadSlice, without Discard, the buffer has %d bytes; it had %d", read,
			r.Size(), before),
	}, nil
}

// counted counts the reads, each of which brings a frame.
type counted struct{ reads int }

func (c *counted) Read(b []byte) (int, error) {
	c.reads++
	return min(len(b), 128), nil
}

func bufioRefills(*contestant.Turn) (contestant.Finding, error) {
	c := &counted{}
	r := bufio.NewReaderSize(c, 4096)
	b := make([]byte, 16)
	held, early := 0, 0
	for range 4096 {
		had, before := r.Buffered(), c.reads
		if _, err := r.Read(b); err != nil {
			return contestant.Finding{}, err
		}
		if had > 0 {
			held++
			early += c.reads - before
		}
	}
	return contestant.Finding{
		Yes:  early > 0,
		Text: fmt.Sprintf("of %d calls of Read while data was held %d read from the port; %d reads brought %d calls their data", held, early, c.reads, 4096),
	}, nil
}

var kept *[4096]byte

// heapMoves asks whether the collector moves what is on the heap. What is on a stack moves when the
// stack grows.
func heapMoves(*contestant.Turn) (contestant.Finding, error) {
	kept = new([4096]byte)
	at := fmt.Sprintf("%p", kept)
	var garbage []byte
	const cycles = 50
	for range cycles {
		garbage = make([]byte, 1<<20)
		runtime.GC()
	}
	runtime.KeepAlive(garbage)
	now := fmt.Sprintf("%p", kept)
	return contestant.Finding{
		Yes:  now != at,
		Text: fmt.Sprintf("a buffer on the heap lay at %s, and after %d collections at %s", at, cycles, now),
	}, nil
}

func indexByteSpares(*contestant.Turn) (contestant.Finding, error) {
	line := append(bytes.Repeat([]byte("x"), 99), '\n')
	allocations := func(work func() int) float64 {
		const runs = 1000
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range runs {
			if work() != 99 {
				panic("own: a line's end is not found")
			}
		}
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs-before.Mallocs) / runs
	}
	by, copied := allocations(func() int { return bytes.IndexByte(line, '\n') }),
		allocations(func() int { return strings.Index(string(line), "\n") })
	return contestant.Finding{
		Yes:  by < 0.1 && copied > 0.9,
		Text: fmt.Sprintf("a line of 100 bytes takes %.2f allocations by bytes.IndexByte, %.2f by strings.Index of a string made of it", by, copied),
	}, nil
}

// loops is what a loop without a call does at least, some seconds' worth.
const loops = uint64(2 << 30)

// needsPreemptAtBuild asks whether this program, which was built without any such setting, can
// interrupt a loop without calls.
func needsPreemptAtBuild(*contestant.Turn) (contestant.Finding, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	info, _ := debug.ReadBuildInfo()
	set := "was built without GODEBUG"
	if info != nil {
		for _, s := range info.Settings {
			if s.Key == "DefaultGODEBUG" && strings.Contains(s.Value, "asyncpreemptoff") {
				set = "was built with " + s.Value
			}
		}
	}
	var over atomic.Bool
	go func() {
		x := uint64(1)
		for i := range loops {
			x = x*3 + i
		}
		spunOut.Store(x)
		over.Store(true)
	}()
	began := time.Now()
	time.Sleep(time.Millisecond) // the one processor goes to the loop; who comes back has interrupted it
	took := time.Since(began)
	interrupted := !over.Load()
	return contestant.Finding{
		Yes: !interrupted,
		Text: fmt.Sprintf("this program %s; on one processor a loop without calls was interrupted: %v, after %v", set,
			interrupted, took.Round(time.Microsecond)),
	}, nil
}

var spunOut atomic.Uint64

// runtimeSource is a file of the runtime's source.
func runtimeSource(name string) (dir string, lines []string, err error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", nil, fmt.Errorf("no source of Go's runtime: go env GOROOT: %w (go.dev/dl)", err)
	}
	dir = filepath.Join(strings.TrimSpace(string(out)), "src", "runtime")
	b, err := os.ReadFile(filepath.Join(dir, name))
	return dir, strings.Split(string(b), "\n"), err
}

func lineOf(name string, lines []string, want *regexp.Regexp) string {
	for i, l := range lines {
		if want.MatchString(l) {
			return fmt.Sprintf("src/runtime/%s:%d: %s", name, i+1, strings.TrimSpace(l))
		}
	}
	return ""
}

var (
	importsSyscall = regexp.MustCompile(`^\s*(import\s+)?"syscall"`)
	mapsMemory     = regexp.MustCompile(`:?= mmap\(`)
	setsBarrier    = regexp.MustCompile(`writeBarrier\.enabled\s*=`)
)

// runtimeUsesSyscall asks the runtime's source whether it maps memory through package syscall.
func runtimeUsesSyscall(*contestant.Turn) (contestant.Finding, error) {
	const file = "mem_linux.go"
	dir, lines, err := runtimeSource(file)
	if err != nil {
		return contestant.Finding{}, err
	}
	sources, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return contestant.Finding{}, err
	}
	for _, path := range sources {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return contestant.Finding{}, err
		}
		if l := lineOf(filepath.Base(path), strings.Split(string(b), "\n"), importsSyscall); l != "" {
			return contestant.Finding{Yes: true, Text: l}, nil
		}
	}
	l := lineOf(file, lines, mapsMemory)
	if l == "" {
		return contestant.Finding{}, fmt.Errorf("src/runtime/%s of this Go has no call of mmap", file)
	}
	return contestant.Finding{Yes: false, Text: fmt.Sprintf("no file of the runtime imports syscall; %s", l)}, nil
}

// barrierByMap asks the runtime's source what switches the write barrier on.
func barrierByMap(*contestant.Turn) (contestant.Finding, error) {
	const file = "mgc.go"
	_, lines, err := runtimeSource(file)
	if err != nil {
		return contestant.Finding{}, err
	}
	l := lineOf(file, lines, setsBarrier)
	if l == "" {
		return contestant.Finding{}, fmt.Errorf("src/runtime/%s of this Go does not set writeBarrier", file)
	}
	return contestant.Finding{Yes: strings.Contains(l, "PROT"), Text: l}, nil
}

// sizeCheckKeeps asks whether a check of the size before mapping keeps SIGBUS away.
func sizeCheckKeeps(t *contestant.Turn) (f contestant.Finding, err error) {
	file, err := os.CreateTemp(t.Text("dir"), "shrinks-")
	if err != nil {
		return f, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	size := 2 * os.Getpagesize()
	if err := file.Truncate(int64(size)); err != nil {
		return f, err
	}
	info, err := file.Stat()
	if err != nil {
		return f, err
	}
	b, err := syscall.Mmap(int(file.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return f, os.NewSyscallError("mmap", err)
	}
	defer func() { _ = syscall.Munmap(b) }() // the program ends anyway
	if err := file.Truncate(0); err != nil { // as anybody may
		return f, err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			f = contestant.Finding{
				Yes:  false,
				Text: fmt.Sprintf("the size, %d bytes, was right when it was checked; the file shrank, and a read of the map was a fault: %v", info.Size(), fault),
			}
		}
	}()
	return contestant.Finding{
		Yes:  true,
		Text: fmt.Sprintf("a byte behind the end of the file was read: %d", b[size-1]),
	}, nil
}
