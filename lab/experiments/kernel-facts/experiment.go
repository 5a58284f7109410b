// Package kernelfacts asks whether what the articles say of the kernel is there.
package kernelfacts

import (
	"fmt"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
)

func init() {
	file := func(path string) lab.Contestant { return lab.Ours(path, "fact", "ask=file", "file="+path) }
	lab.Register(&lab.Experiment{
		Name: "kernel-facts", Plane: lab.Laboratory,
		Question: "Is there what the articles say of the kernel?",
		Method:   "Each contestant is a file that is looked for, or an operation that a ring is asked for, once.",
		Metrics:  []lab.Metric{lab.Answer}, Once: true,
		Contestants: []lab.Contestant{
			file("/proc/sys/kernel/io_uring_disabled").But("the switch that there is"),
			file("/proc/sys/kernel/unshare_flags"), file("/proc/sys/kernel/io_uring_register_files"), file("/proc/sys/fs/io_uring"),
			file("/sys/class/tty/ttyS0/rx_trig_bytes").But("the trigger that there is, where a UART has a FIFO"), file("/sys/class/tty/ttyS0/device/rx_trig_lvl"),
			lab.Ours("ring: splice", "fact", "ask=op", "op=splice"), lab.Ours("ring: fsync", "fact", "ask=op", "op=fsync"), lab.Ours("ring: statx", "fact", "ask=op", "op=statx"),
		},
		Advice: func(v lab.View) string {
			if len(v.Rows) == 0 {
				return ""
			}
			n := 0
			for _, r := range v.Rows {
				if r.Metrics[lab.Answer.String()].Median == 0 {
					n++
				}
			}
			return fmt.Sprintf("Do not check features by files or versions that articles name: %d of %d things asked for are not there. `tallywheel doctor` tries them.", n, len(v.Rows))
		},
		Claims: judges(),
	})
}

func judges() []lab.Claim {
	return []lab.Claim{
		claims.UnshareFlags.Refuted("/proc/sys/kernel/unshare_flags",
			"There is no such file (Linux, kernel/sysctl.c). The way to know is to call io_uring_setup."),
		claims.RegisterFiles.Refuted("/proc/sys/kernel/io_uring_register_files",
			"There is no such setting (Documentation/admin-guide/sysctl/kernel.rst knows io_uring_disabled and io_uring_group). Files are registered by each program."),
		claims.TriggerLevel.Refuted("/sys/class/tty/ttyS0/device/rx_trig_lvl",
			"The attribute is rx_trig_bytes (Documentation/ABI/testing/sysfs-tty), and it sets when the UART interrupts. The FIFO is 16 to 128 bytes of silicon."),
		claims.Sendfile.Judged("ring: splice", func(v lab.View) (lab.Verdict, bool) {
			_, here, ok := v.Answer("ring: splice")
			return lab.CannotBe(here, "There is none in include/uapi/linux/io_uring.h of any version; IORING_OP_SPLICE (5.7) does it through a pipe."), ok
		}),
		claims.Kernel419.Judged("any file", func(v lab.View) (lab.Verdict, bool) {
			return lab.CannotBe("–", "io_uring came with Linux 5.1 (commit 2b188cc1bb85, March 2019), its option is CONFIG_IO_URING. What was measured on 4.19 was something else."), len(v.Rows) > 0
		}),
		claims.StatxFsync.Judged("ring: statx and ring: fsync", func(v lab.View) (lab.Verdict, bool) {
			statx, one, ok1 := v.Answer("ring: statx")
			fsync, other, ok2 := v.Answer("ring: fsync")
			return lab.Holds(statx && fsync, one+"; "+other, "Since 5.6 and 5.1."), ok1 && ok2
		}),
	}
}
