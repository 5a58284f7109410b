package cell

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/tallywheel/tallywheel/ipc"
	"github.com/tallywheel/tallywheel/rt"
)

// The bounds of a period. Below, a wake-up alone takes a good part of it; above, a timer of package
// time will do.
const (
	MinPeriod = 50 * time.Microsecond
	MaxPeriod = time.Hour
)

// Config says what a cell does, and when.
type Config struct {
	Task   Task          // what it does each period: [Kind.With]
	Period time.Duration // MinPeriod to MaxPeriod
	Count  uint64        // periods, then it ends; 0: until it is stopped

	Priority int           // in SCHED_FIFO, 1 to 99; 0: it is an ordinary thread
	Budget   time.Duration // instead: so much CPU time in each period, promised by the kernel (SCHED_DEADLINE)
	CPU      rt.CPUs       // where its thread may run; nil: anywhere. Not with Budget, which is for all CPUs

	Strict  bool          // an allocation behind the set-up ends the cell
	Runaway time.Duration // how long a step may compute, 1 ms to 1 h; 0: 1 s. Ten times as long where it waits

	In, Out *ipc.RingConfig // rings to the cell and from it; nil: none
}

// Why a configuration is refused.
var (
	// ErrConfig is in the error of a Config that makes no sense.
	ErrConfig = errors.New("cell: wrong configuration")
	// ErrNoMain is the error of Start where nobody has called Main.
	ErrNoMain = errors.New("cell: Main was not called: call it at the beginning of main, or the process of a cell would not know what it is")
	// ErrStop, returned by a step, ends the cell; that is no failure.
	ErrStop = errors.New("cell: end")
)

const (
	defaultRunaway = time.Second
	minRunaway     = time.Millisecond
	maxRunaway     = time.Hour
	patience       = 10 // times Runaway for a step that waits, or is not let run

	// minBudget is the least that the kernel takes, sched(7).
	minBudget = 1024 * time.Nanosecond
)

func (c *Config) fill() error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: %w", ErrConfig, fmt.Errorf(format, args...))
	}
	if c.Runaway == 0 {
		c.Runaway = defaultRunaway
	}
	switch {
	case c.Task.name == "":
		return wrong("no Task: want one that Register has made, by its With")
	case c.Task.err != nil:
		return wrong("the argument of task %s: %w", c.Task.name, c.Task.err)
	case c.Period < MinPeriod || c.Period > MaxPeriod:
		return wrong("Period %v: want %v to %v", c.Period, MinPeriod, MaxPeriod)
	case c.Priority < 0 || c.Priority > 99:
		return wrong("Priority %d: want 1 to 99, or 0 for an ordinary thread", c.Priority)
	case c.Budget != 0 && (c.Budget < minBudget || c.Budget > c.Period):
		return wrong("Budget %v: want %v to the Period, %v", c.Budget, minBudget, c.Period)
	case c.Budget != 0 && c.Priority != 0:
		return wrong("Budget and Priority: want one of them; a thread is in one class")
	case c.Budget != 0 && c.CPU != nil:
		return wrong("Budget and CPU: SCHED_DEADLINE promises time on all CPUs of a cpuset, and takes no thread that is bound to some of them; leave one out")
	case c.Runaway < minRunaway || c.Runaway > maxRunaway:
		return wrong("Runaway %v: want %v to %v", c.Runaway, minRunaway, maxRunaway)
	}
	return nil
}

// Task is what a cell does, with its argument. [Kind.With] makes one.
type Task struct {
	name string
	arg  json.RawMessage
	err  error
}

// Step does what is to be done in one period. An error ends the cell; [ErrStop] is none.
type Step func(t Tick) error

// Tick is one period. Times are those of [rt.Now], which both processes share.
type Tick struct {
	N       uint64        // from 0 on; releases that were missed have none
	Release time.Duration // when it began
	Woke    time.Duration // when the thread woke for it
	Missed  uint64        // releases that were left out right before
}

// Self is a cell as its own set-up sees it.
type Self struct {
	Period  time.Duration
	In, Out *ipc.Ring // the rings of Config, or nil; In is to be consumed, Out to be filled
}

// Kind is a registered task, without its argument.
type Kind[A any] struct{ name string }

// kinds are the registered tasks by name: what sets one up, from its argument in JSON. Written
// while the program's variables are initialised, then only read.
var kinds = map[string]func(*Self, json.RawMessage) (Step, error){}

// Register gives a task a name, by which the process of a cell finds it: call it from a variable of
// a package, so that both processes do. setUp runs in the cell, once; A is anything that
// encoding/json carries. Register panics if the name is taken.
func Register[A any](name string, setUp func(c *Self, arg A) (Step, error)) Kind[A] {
	if _, taken := kinds[name]; taken || name == "" {
		panic(fmt.Sprintf("cell: the name %q of a task is taken, or empty", name))
	}
	kinds[name] = func(c *Self, raw json.RawMessage) (Step, error) {
		var arg A
		if err := json.Unmarshal(raw, &arg); err != nil {
			return nil, err
		}
		return setUp(c, arg)
	}
	return Kind[A]{name}
}

// With is the task with an argument.
func (k Kind[A]) With(arg A) Task {
	b, err := json.Marshal(arg)
	return Task{k.name, b, err}
}

// variable tells a process that it is a cell.
const variable = "TALLYWHEEL_CELL"

// mained says that Main was called. main writes it, before it starts anything.
var mained bool

// Main makes this process a cell, if it was started as one, and does not return then. Call it at
// the beginning of main, and in TestMain of tests that start cells.
func Main() {
	mained = true
	if os.Getenv(variable) == "" {
		return
	}
	_ = os.Unsetenv(variable) // what the cell starts is none
	os.Exit(become())
}

// order is what the process of a cell is told first. Beside it come its page, and the rings.
type order struct {
	Parent   int             `json:"parent"` // number of the process that has started it
	Task     string          `json:"task"`
	Arg      json.RawMessage `json:"arg"`
	Period   time.Duration   `json:"period"`
	Count    uint64          `json:"count"`
	Priority int             `json:"priority"`
	Budget   time.Duration   `json:"budget"`
	CPU      rt.CPUs         `json:"cpu"`
	Strict   bool            `json:"strict"`
	Runaway  time.Duration   `json:"runaway"`
	In       *ipc.RingConfig `json:"in"`
	Out      *ipc.RingConfig `json:"out"`
}

// scheduling is how the cell's thread shall be scheduled.
func (o order) scheduling() rt.Scheduling {
	switch {
	case o.Budget > 0:
		return rt.Scheduling{Policy: rt.Deadline, Runtime: o.Budget, Deadline: o.Period, ResetOnFork: true}
	case o.Priority > 0:
		return rt.Scheduling{Policy: rt.FIFO, Priority: o.Priority, ResetOnFork: true}
	}
	return rt.Scheduling{}
}

// report is what it says: once when it has been set up, and once at its end.
type report struct {
	Ready    bool     `json:"ready,omitempty"`
	Lacking  []string `json:"lacking,omitempty"`
	Priority int      `json:"priority,omitempty"` // that it has, in SCHED_FIFO
	Over     bool     `json:"over,omitempty"`
	Error    string   `json:"error,omitempty"`
}

// linkFD is the descriptor of the connection in the process of a cell.
const linkFD = 3

// linkConfig bounds messages: an argument, or a stack, is the largest part of one.
var linkConfig = ipc.ConnConfig{MaxData: 128 << 10, MaxFiles: 3}
