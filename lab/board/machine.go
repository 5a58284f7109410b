package board

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// Machine is an emulator that runs, and is spoken to by QEMU's machine protocol (QMP), a line of
// JSON each, over its standard input and output. It belongs to one goroutine at a time,
// but for Close.
type Machine struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	said   bytes.Buffer // on standard error; to be read once it has ended
	events []string     // that came, and were not waited for yet
	end    sync.Once

	starter sys.Starter // whose thread the emulator ends with
}

// endsWithin is how long an emulator that is killed has its outputs open at most.
const endsWithin = 5 * time.Second

// Boot starts an emulator, which ends with ctx, or with this process.
func Boot(ctx context.Context, program string, args ...string) (*Machine, error) {
	m := &Machine{cmd: exec.CommandContext(ctx, program, append(slices.Clone(args), "-qmp", "stdio")...)}
	m.cmd.Stderr = &m.said
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	m.cmd.WaitDelay = endsWithin
	in, err := m.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	m.starter = sys.NewStarter()
	if err := m.starter.Do(m.cmd.Start); err != nil {
		m.starter.Close()
		return nil, err
	}
	m.in, m.out = in, bufio.NewReader(out)
	if _, err := m.Command("qmp_capabilities", nil); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// Close ends the emulator, at once; whoever waits for it meanwhile is told.
func (m *Machine) Close() error {
	m.end.Do(func() {
		_ = m.cmd.Process.Kill() // it may have ended
		_ = m.cmd.Wait()         // killed, as it should be
		m.starter.Close()
	})
	return nil
}

// Refused is what QEMU says of a command that it does not carry out.
type Refused struct{ Command, Why string }

func (r *Refused) Error() string { return fmt.Sprintf("QEMU refuses %s: %s", r.Command, r.Why) }

// message is a line of QEMU's: an answer, or an event.
type message struct {
	Return *json.RawMessage
	Error  *struct{ Desc string }
	Event  string
}

// hear is the next line of the protocol; QEMU says in words, too, which terminals it has made.
func (m *Machine) hear() (a message, err error) {
	var line []byte
	for err == nil && !bytes.HasPrefix(line, []byte("{")) {
		line, err = m.out.ReadBytes('\n')
	}
	if err == nil {
		return a, json.Unmarshal(line, &a)
	}
	_ = m.Close()
	if why := strings.TrimSpace(m.said.String()); why != "" {
		return a, fmt.Errorf("the emulator has ended: %s", why)
	}
	return a, fmt.Errorf("the emulator has ended: %v", m.cmd.ProcessState)
}

// Command has QEMU do something, and returns its answer. The error is a [*Refused] where it does
// not.
func (m *Machine) Command(name string, args map[string]any) (json.RawMessage, error) {
	b, err := json.Marshal(struct {
		Execute   string         `json:"execute"`
		Arguments map[string]any `json:"arguments,omitempty"`
	}{name, args})
	if err != nil {
		return nil, err
	}
	_, _ = m.in.Write(append(b, '\n')) // what fails is seen by who reads
	for {
		switch a, err := m.hear(); {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", name, err)
		case a.Error != nil:
			return nil, &Refused{name, a.Error.Desc}
		case a.Return != nil:
			return *a.Return, nil
		case a.Event != "":
			m.events = append(m.events, a.Event)
		}
	}
}

// Await waits for an event, which may have come already.
func (m *Machine) Await(event string) error {
	for {
		if i := slices.Index(m.events, event); i >= 0 {
			m.events = slices.Delete(m.events, i, i+1)
			return nil
		}
		a, err := m.hear()
		if err != nil {
			return err
		}
		if a.Event != "" {
			m.events = append(m.events, a.Event)
		}
	}
}

// Terminal is the path of the terminal that a chardev of the kind pty has.
func (m *Machine) Terminal(chardev string) (string, error) {
	answer, err := m.Command("query-chardev", nil)
	if err != nil {
		return "", err
	}
	var all []struct{ Label, Filename string }
	if err := json.Unmarshal(answer, &all); err != nil {
		return "", err
	}
	for _, c := range all {
		if path, ok := strings.CutPrefix(c.Filename, "pty:"); ok && c.Label == chardev {
			return path, nil
		}
	}
	return "", fmt.Errorf("the emulator has no terminal %s: %s", chardev, answer)
}
