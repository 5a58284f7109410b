package gofacts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/lab/readers"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

// readBlocked blocks in read until a byte comes.
func readBlocked(read func([]byte) (int, error)) {
	_, _ = read(make([]byte, 1))
}

// stateOf waits until the goroutine in readBlocked waits for something, and names it.
func stateOf() (string, error) {
	buf := make([]byte, 1<<16)
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if _, state, ok := strings.Cut(g, "["); ok && strings.Contains(g, ".readBlocked(") {
				if state, _, _ = strings.Cut(state, "]"); state == "syscall" || state == "IO wait" {
					return state, nil
				}
			}
		}
	}
	return "", errors.New("a goroutine that reads an empty port does not wait")
}

// blockedInRead asks what becomes of a goroutine that reads an empty port, by a read that blocks
// and by a file that the poller watches, and whether others run on meanwhile on the only processor.
func blockedInRead(t *contestant.Turn) (f contestant.Finding, err error) {
	path := filepath.Join(t.Text("dir"), "blocked")
	p, err := serialtest.NewPort(path)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	file, err := readers.OpenPort(path)
	if err != nil {
		return f, err
	}
	defer file.Close()
	fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return f, os.NewSyscallError("open", err)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var states []string
	for _, read := range []func([]byte) (int,
		error){func(b []byte) (int, error) { return syscall.Read(fd, b) }, file.Read} {
		over := make(chan bool)
		go func() { readBlocked(read); close(over) }()
		state, err := stateOf() // runs on the only P: the reader has given it away
		if err != nil {
			return f, err
		}
		states = append(states, state)
		for more := true; more; { // a byte of another turn may have been taken by the other
			if _, err := p.Write([]byte{1}); err != nil {
				return f, err
			}
			select {
			case <-over:
				more = false
			case <-time.After(blockedLimit):
			}
		}
	}
	return contestant.Finding{
		Yes:  states[0] == "syscall",
		Text: fmt.Sprintf("with one P, others ran on while syscall.Read blocked (state: %s) and while os.File.Read did (state: %s: no thread is in a system call)", states[0], states[1]),
	}, nil
}
