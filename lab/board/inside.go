package board

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/lab"
)

// Plan is what a board does.
type Plan struct {
	Interval time.Duration // between two wake-ups
	Periods  int           // of each contestant; 0: it says when it began, and nothing else
	Programs string        // folder, on the board, of the contestants in other languages
}

// line is what a board says of one thing.
type line struct {
	Board      int          `json:"board"` // its number, from 1
	What       string       `json:"what"`  // first, turn or last
	Up         int64        `json:"up_ns,omitempty"`
	Machine    *lab.Machine `json:"machine,omitempty"`
	Contestant string       `json:"contestant,omitempty"`
	Metrics    lab.Metrics  `json:"metrics,omitempty"`
	Said       string       `json:"said,omitempty"`
	NotRun     string       `json:"not_run,omitempty"`
}

// What lines are about.
const (
	first = "first" // the board is there; Up is its clock since the kernel's start
	turn  = "turn"  // a contestant has had its turn, or why not
	last  = "last"
)

// speaker numbers the lines.
type speaker struct {
	to io.Writer
	n  int
}

func (s *speaker) say(l line) error {
	s.n++
	l.Board = s.n
	b, err := json.Marshal(l)
	if err == nil {
		_, err = s.to.Write(append(b, '\n'))
	}
	return err
}

// switchFor is how long tasks wake each other.
const switchFor = 20 * time.Millisecond

// Inside is the part of the board: it has each contestant take a turn, and says of each what came
// of it, a line of JSON each. As the first process of a machine it mounts what programs need.
func (p Plan) Inside(ctx context.Context, out io.Writer) error {
	s := &speaker{to: out}
	up := sys.Monotonic()
	if os.Getpid() == 1 {
		if err := sys.MountAsInit(); err != nil {
			return err
		}
	}
	machine := lab.ThisMachine("/")
	if err := s.say(line{What: first, Up: up.Nanoseconds(), Machine: &machine}); err != nil {
		return err
	}
	for _, t := range tasks {
		if p.Periods == 0 {
			break
		}
		l := line{What: turn, Contestant: t.c.Name}
		var err error
		if l.Metrics, l.Said, err = lab.Take(ctx, p.command(t)...); err != nil {
			l.NotRun = err.Error()
		}
		if err := s.say(l); err != nil {
			return err
		}
	}
	return s.say(line{What: last})
}

// command is how a task is called on the board.
func (p Plan) command(t task) []string {
	argv := append([]string{filepath.Join(p.Programs, t.file)}, t.c.Args...)
	if t.own != "" {
		self, err := os.Executable() // as the first process it looked for itself when /proc was not there
		if err != nil {
			self = os.Args[0]
		}
		argv = []string{cmp.Or(self, os.Args[0]), "lab", "contestant", t.own, t.c.Name}
	}
	length := switchFor
	if t.periodic {
		length = time.Duration(p.Periods) * p.Interval
		argv = append(argv, "interval_us="+strconv.FormatInt(p.Interval.Microseconds(), 10))
	}
	return append(argv, fmt.Sprintf("seconds=%g", length.Seconds()))
}

// Arguments are those with which our program does this on a board.
func (p Plan) Arguments() []string {
	return []string{
		"lab", "inside", "--interval", p.Interval.String(), "--periods", strconv.Itoa(p.Periods),
		"--programs", p.Programs,
	}
}
