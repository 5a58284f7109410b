// Package serialmmap asks whether a serial port can be mapped into memory, and what a map costs
// where there is one.
package serialmmap

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/lab/load"
)

var (
	tty    = lab.Ours("tty/mmap", mapTTY)
	uio    = lab.Ours("uio/mmap", contestant.Asks(mapUIO))
	pread  = lab.Ours("page/pread", touching((*pages).pread))
	mapped = lab.Ours("page/mapped", touching((*pages).mapped))
	fault  = lab.Ours("page/fault", touching((*pages).fault))
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "serial-mmap", Plane: lab.Serial,
		Question: "Can a serial port be mapped into memory, and what would that save?",
		Method: "tty/mmap opens a tty and maps it; what the kernel answers stands in its place, and uio/mmap maps a device of UIO, where there is one. Beside it, what a page of a file in the page cache costs: by pread of 4 KiB, " +
			"by a byte of a page that is mapped, and by one that is not mapped yet, page fault included (the kernel maps up to 16 neighbours at a fault).",
		Metrics:     []lab.Metric{lab.NsPerOp, lab.CPUPerOp, lab.PageFaultsPerOp, lab.Answer},
		Base:        pread,
		Contestants: []*lab.Contestant{tty, uio, pread, mapped, fault},
		Prepare: func(_ context.Context, b *lab.Bench) error {
			return os.WriteFile(filepath.Join(b.Dir, "pages"), make([]byte, 4096*os.Getpagesize()), 0o600)
		},
		Scene: func(b *lab.Bench, c *lab.Contestant, _ lab.Params) (*lab.Scene, error) {
			if c != tty {
				return &lab.Scene{Params: lab.Params{"file": filepath.Join(b.Dir, "pages")}}, nil
			}
			s, err := load.Serial{Ports: 1}.Scene(b)
			if err == nil {
				s.Load = nil
			}
			return s, err
		},
		Advice: func(v lab.View) string {
			said, ok := v.Beside(lab.Params{}, lab.NsPerOp, "%.0f", 1, pread, fault)
			if !ok {
				return ""
			}
			return fmt.Sprintf("A pread of 4 KiB from the page cache takes %s ns here, a first touch of a mapped page %s.", said...)
		},
		Claims: []lab.Claim{
			claims.MappedPort.Judged("tty/mmap", func(v lab.View) (lab.Verdict, bool) {
				yes, said, ok := v.Answer(tty)
				if ok && !yes {
					return lab.CannotBe(said,
						"No tty driver implements mmap: tty_fops has none (Linux, drivers/tty/tty_io.c), so the call gives ENODEV. The article's fourth chapter says so itself."), true
				}
				return lab.Holds(yes, said, "It could not wherever this project has run."), ok
			}),
			claims.MapRefused.Judged("tty/mmap", func(v lab.View) (lab.Verdict, bool) {
				_, said, ok := v.Answer(tty)
				return lab.Holds(strings.Contains(said, "no such device"), said,
					"What maps UARTs is UIO, where a driver offers its registers."), ok
			}),
			claims.MappedUIO.Asked(uio,
				"A driver of UIO takes the UART from the kernel's: what maps its registers has no tty, and polls or serves every interrupt itself.", ""),
			claims.ReadKernelTime.Judged("page/pread", func(v lab.View) (lab.Verdict, bool) {
				m, ok := v.Median(pread, lab.Params{}, lab.NsPerOp)
				return lab.NotHere("a UART: the article read a tty. A file in the page cache is something else.").As("%.2f µs from the page cache", m/1e3), ok
			}),
		},
	})
}
