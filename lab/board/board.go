package board

import (
	"cmp"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/lab"
)

// Config is what [Run] does.
type Config struct {
	Plan
	Kernels []Kernel
	Guest   string // file of our program for ARMv7
	Boots   int    // of each kernel, and as many with a seed each; or rounds
	QEMU    string // the emulator's program
	// a board that is there: Guest is our program's path on it, and nothing is booted
	Target *Target
}

// Kernel is one that boards boot.
type Kernel struct{ Name, File string }

// task is a contestant on the board.
type task struct {
	c        *lab.Contestant
	own      string // the experiment that has it; "": it is a program, whose
	file     string // name on the board is this
	periodic bool   // it wakes up each period; else it does what it does for a while
}

var (
	ofCell   = &lab.Contestant{Name: "tallywheel/cell", Note: "a process of its own"}
	ticker   = &lab.Contestant{Name: "go/time.Ticker"}
	inC      = lab.CrossC("cyclic.c", "-lm").As("c/clock_nanosleep", "cyclic", "how=nanosleep")
	inRust   = lab.CrossRust("cyclic.rs").As("rust/clock_nanosleep", "cyclic", "how=nanosleep")
	routines = &lab.Contestant{Name: "go/goroutine", Note: "GOMAXPROCS=1"}
	threads  = lab.CrossC("switch.c", "-lpthread").As("c/futex", "switch", "how=futex")
	asInit   = &lab.Contestant{Name: "go/init", Note: "this program, as the first process"}
)

// tasks are all that take turns, in their order.
var tasks = []task{
	{c: ofCell, own: "rt-cyclic", periodic: true},
	{c: ticker, own: "rt-cyclic", periodic: true},
	{c: inC, file: "c-cyclic", periodic: true},
	{c: inRust, file: "rust-cyclic", periodic: true},
	{c: routines, own: "rt-switch"},
	{c: threads, file: "c-switch"},
}

// emulated is a machine with one Cortex-A7, whose time goes by instructions, and which waits to be
// told to begin: by then the recorder listens. It stays, with its terminal, where the guest is off.
const emulated = "-cpu cortex-a7 -icount shift=3,sleep=off,align=off -rtc base=2026-01-01,clock=vm " +
	"-m 512 -smp 1 -display none -monitor none -nodefaults -no-reboot -no-shutdown -S " +
	"-chardev pty,id=console -serial chardev:console"

// Boots are alike with the first seed, where the kernel is not told to mix in what QEMU has of it.
const (
	alike = "-M virt,dtb-randomness=off -seed 1"
	apart = "-M virt -seed "
)

// bootWithin is how long a boot may take, on the clock of this machine.
const bootWithin = 15 * time.Minute

// boots are those of one kernel.
type boots struct {
	kernel string
	same   []heard // with one seed
	seeded []heard // with one each, to the first line
	notRun map[string]string
}

// Run has boards take their turns, and returns what came of it.
func Run(ctx context.Context, b *lab.Bench, c Config) (*lab.Results, error) {
	defer b.Tell("")
	began := time.Now()
	if c.Target != nil {
		of, err := c.turns(ctx, b)
		if err != nil {
			return nil, err
		}
		return results(b, c, began, []boots{of}), nil
	}
	notRun := map[string]string{} // by contestant
	files := map[string]string{"tallywheel": c.Guest}
	for _, t := range tasks {
		if t.own != "" {
			continue
		}
		b.Tell("building %s", t.c.Name)
		path, err := b.Program(t.c.Program)
		if err != nil {
			notRun[t.c.Name] = err.Error()
			continue
		}
		files[t.file] = path[0]
	}
	c.Programs = "/"
	initramfs := filepath.Join(b.Scratch(), "initramfs")
	if err := WriteInitramfs(initramfs, files); err != nil {
		return nil, err
	}
	var all []boots
	for _, k := range c.Kernels {
		of, err := c.boots(ctx, b, k, initramfs)
		if err != nil {
			return nil, err
		}
		of.notRun = notRun
		all = append(all, of)
	}
	return results(b, c, began, all), nil
}

// boots boots a kernel as often as it is asked for with one seed, and with a seed each.
func (c Config) boots(ctx context.Context, b *lab.Bench, k Kernel, initramfs string) (of boots, err error) {
	of.kernel = k.Name
	toFirstLine := c
	toFirstLine.Periods = 0
	for i := range 2 * c.Boots {
		seed, boot, machine := i-c.Boots+1, c, alike
		if seed > 0 {
			boot, machine = toFirstLine, apart+strconv.Itoa(seed)
		}
		b.Tell("%s: boot %d of %d", k.Name, i+1, 2*c.Boots)
		h, err := boot.boot(ctx, b.Scratch(), machine, k, initramfs)
		if err != nil {
			return of, fmt.Errorf("%s, boot %d: %w", k.Name, i+1, err)
		}
		if seed > 0 {
			of.seeded = append(of.seeded, h)
		} else {
			of.same = append(of.same, h)
		}
	}
	return of, nil
}

// Emulated is how QEMU is called for such a board, beside the machine and its seed.
func Emulated(kernel, initramfs, appended string) []string {
	return append(strings.Fields(emulated), "-kernel", kernel, "-initrd", initramfs,
		"-append", "console=ttyAMA0 quiet panic=-1 nokaslr "+appended)
}

// boot boots once, and returns what the board has said.
func (c Config) boot(ctx context.Context, in, machine string, k Kernel, initramfs string) (h heard, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, bootWithin, fmt.Errorf("not done after %v", bootWithin))
	defer cancel()
	m, err := Boot(ctx, c.QEMU, append(strings.Fields(machine),
		Emulated(k.File, initramfs, "rdinit=/tallywheel -- "+strings.Join(c.Arguments(), " "))...)...)
	if err != nil {
		return h, err
	}
	defer m.Close()
	terminal, err := m.Terminal("console")
	if err != nil {
		return h, err
	}
	g, err := record(ctx, in, terminal)
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	if _, err := m.Command("cont", nil); err != nil {
		return h, err
	}
	listening, stop := context.WithCancelCause(ctx)
	off := make(chan struct{})
	go func() { // until the machine is closed
		defer close(off)
		err := m.Await("SHUTDOWN")
		select {
		case <-listening.Done():
		case <-time.After(drainedWithin): // what it said before is on its way
			stop(cmp.Or(err, errOff))
		}
	}()
	h, err = g.listen(listening)
	stop(nil)
	err = errors.Join(err, m.Close())
	<-off
	if err != nil && h.lastText != "" {
		err = fmt.Errorf("%w; it said last: %s", err, h.lastText)
	}
	return h, err
}

// errOff is that a board is off, and has not said its last line.
var errOff = errors.New("the board went off before its last line")

// drainedWithin is how long what an emulator has sent takes to be read.
const drainedWithin = 5 * time.Second

// CheckKernel says what is wrong with a file that is to be a kernel: a zImage for ARM has a number
// 0x24 bytes from its beginning (arch/arm/boot/compressed/head.S).
func CheckKernel(path string) error {
	const at, magic = 0x24, 0x016f2818
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var b [4]byte
	if _, err := f.ReadAt(b[:], at); err != nil || binary.LittleEndian.Uint32(b[:]) != magic {
		return fmt.Errorf("%s: want a kernel for ARMv7, as zImage", path)
	}
	return nil
}

// CheckGuest says what is wrong with a file that is to be our program on a board.
func CheckGuest(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	f, err := elf.NewFile(file)
	if err == nil && f.Machine == elf.EM_ARM &&
		!slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return nil
	}
	return fmt.Errorf("%s: want a program for ARMv7 that is linked statically, as GOOS=linux GOARCH=arm GOARM=7 CGO_ENABLED=0 go build makes it", path)
}
