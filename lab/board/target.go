package board

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

// Target is a board that is there already: at the end of a serial line, on which its shell listens,
// or at that of ssh.
type Target struct{ Serial, SSH string }

// ParseTarget reads serial:/dev/ttyUSB0, or ssh:USER@HOST.
func ParseTarget(text string) (*Target, error) {
	kind, where, _ := strings.Cut(text, ":")
	switch {
	case kind == "serial" && where != "":
		return &Target{Serial: where}, nil
	case kind == "ssh" && where != "" && !strings.HasPrefix(where, "-"):
		return &Target{SSH: where}, nil
	}
	return nil, fmt.Errorf("%q: want serial:PORT or ssh:USER@HOST", text)
}

// plain is a path that a shell takes as it is.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./-]+$`)

// command is what a shell of the board is told. The programs lie beside ours.
func (c Config) command() (string, error) {
	if !plain.MatchString(c.Guest) {
		return "", fmt.Errorf("%q: want the path of our program on the board, of letters, digits and _ . / -", c.Guest)
	}
	plan := c.Plan
	plan.Programs = filepath.Dir(c.Guest)
	return c.Guest + " " + strings.Join(plan.Arguments(), " "), nil
}

// answersWithin is how long a board may take beyond the time that its contestants work.
const answersWithin = 2 * time.Minute

// turns has a board that is there take its turns, as often as boots are asked for.
func (c Config) turns(ctx context.Context, b *lab.Bench) (of boots, err error) {
	command, err := c.command()
	if err != nil {
		return of, err
	}
	once := c.overSerial
	if c.Target.SSH != "" {
		once = c.overSSH
	}
	limit := answersWithin
	for _, t := range tasks {
		if t.periodic {
			limit += 2 * time.Duration(c.Periods) * c.Interval
		}
	}
	for i := range c.Boots {
		b.Tell("round %d of %d", i+1, c.Boots)
		ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the board has not said its last line within %v", limit))
		h, err := once(ctx, b.Scratch(), command)
		cancel()
		if err != nil && h.lastText != "" {
			err = fmt.Errorf("%w; it said last: %s", err, h.lastText)
		}
		if err != nil {
			return of, fmt.Errorf("round %d: %w", i+1, err)
		}
		of.kernel = h.lines[0].Machine.Kernel
		of.same = append(of.same, h)
	}
	return of, nil
}

// overSerial types the command into the shell at the other end of a line.
func (c Config) overSerial(ctx context.Context, in, command string) (h heard, err error) {
	// it is opened first: a recorder keeps others out
	line, err := os.OpenFile(c.Target.Serial, os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return h, err
	}
	defer line.Close()
	g, err := record(ctx, in, c.Target.Serial)
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	if _, err := line.WriteString("\n" + command + "\n"); err != nil {
		return h, err
	}
	return g.listen(ctx)
}

// overSSH has ssh carry the command out, and what it prints come by a terminal, which the recorder
// reads.
func (c Config) overSSH(ctx context.Context, in, command string) (h heard, err error) {
	link := filepath.Join(in, "ssh")
	port, err := serialtest.NewPort(link)
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, port.Close()) }()
	g, err := record(ctx, in, link)
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ssh := exec.CommandContext(ctx, "ssh", "-o", "BatchMode=yes", c.Target.SSH, command)
	ssh.WaitDelay = endsWithin
	var said strings.Builder
	ssh.Stdout, ssh.Stderr = toPort{ctx, port}, &said
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := ssh.Run(); err != nil && ctx.Err() == nil {
			stop(fmt.Errorf("ssh %s: %w: %s", c.Target.SSH, err, strings.TrimSpace(said.String())))
		}
	}()
	h, err = g.listen(ctx)
	stop(nil)
	<-ended
	return h, err
}

// toPort writes all of what it is given into a terminal, which takes as much as there is room.
type toPort struct {
	ctx  context.Context
	port *serialtest.Port
}

func (w toPort) Write(b []byte) (int, error) {
	for at := 0; at < len(b); {
		n, err := w.port.Write(b[at:])
		if err != nil {
			return at, err
		}
		if at += n; n == 0 {
			if err := pause(w.ctx); err != nil {
				return at, err
			}
		}
	}
	return len(b), nil
}
