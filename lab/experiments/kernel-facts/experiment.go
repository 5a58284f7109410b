// Package kernelfacts asks whether what the articles say of the kernel is so.
package kernelfacts

import (
	"fmt"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
)

// The things that are asked, as contestants are called.
const (
	unshareFlags  = "/proc/sys/kernel/unshare_flags"
	registerFiles = "/proc/sys/kernel/io_uring_register_files"
	uringFile     = "/proc/sys/fs/io_uring"
	trigLevel     = "/sys/class/tty/ttyS0/device/rx_trig_lvl"
	dmaChannel    = "/sys/class/dma/dma0chan0/bytes_transferred"
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "kernel-facts", Plane: lab.Laboratory,
		Question: "Is what the articles say of the kernel so?",
		Method: "Each contestant looks for a file, asks the kernel for something by the system call itself, or is a program that compiles only if the kernel's interface has what it names. " +
			"It answers once, by yes or no, and says what shows it.",
		Metrics: []lab.Metric{lab.Answer}, Once: true,
		Contestants: contestants(),
		Advice: func(v lab.View) string {
			if len(v.Rows) == 0 {
				return ""
			}
			absent, files := 0, []string{unshareFlags, registerFiles, uringFile, trigLevel, dmaChannel}
			for _, path := range files {
				if yes, _, ok := v.Answer(path); ok && !yes {
					absent++
				}
			}
			return fmt.Sprintf("Do not check features by files or versions that articles name: %d of %d files are not there. `tallywheel doctor` tries them.", absent, len(files))
		},
		Claims: judges(),
	})
}

func contestants() []lab.Contestant {
	file := func(path string) lab.Contestant { return lab.Ours(path, "fact", "ask=file", "file="+path) }
	ask := func(name, fact string) lab.Contestant { return lab.Ours(name, "fact", "ask="+fact) }
	op := func(name string) lab.Contestant { return lab.Ours("ring: "+name, "fact", "ask=op", "op="+name) }
	c := func(source, name, fact string) lab.Contestant {
		return lab.C(source, "apt install gcc linux-libc-dev").As(name, "fact", "ask="+fact)
	}
	ring := func(name, fact string) lab.Contestant { return c("facts_uring.c", "ring: "+name, fact) }
	kernel := func(name, fact string) lab.Contestant { return c("facts_kernel.c", name, fact) }
	return []lab.Contestant{
		file("/proc/sys/kernel/io_uring_disabled").But("the switch that there is"), file(unshareFlags), file(registerFiles), file(uringFile),
		file("/sys/class/tty/ttyS0/rx_trig_bytes").But("the trigger that there is, where a UART has a FIFO"), file(trigLevel), file(dmaChannel),
		ask("8250: skip_txen", "8250"), c("serial_dma.c", "setserial: dma", ""), ask("port without mmap", "port-map"),
		op("splice"), op("fsync"), op("statx"),
		ring("needs three maps", "three-maps"), ring("SQPOLL needs root", "sqpoll-needs-root"), ring("SQ_WAIT waits", "sq-wait"), ring("IOPOLL polls", "iopoll"), ring("IOPOLL alone", "poll-apart"),
		ring("SQ_AFF binds", "sq-affinity"), ring("statx is of 6.1", "statx-is-new"), ring("statx: len is a size", "len-is-size"), c("single_issue.c", "ring: SINGLE_ISSUE", ""),
		ask("ring: broken link", "broken-link"), ask("ring: SQPOLL needs a thread", "sqpoll-thread"),
		kernel("aio-max-nr limits rings", "aio-limits-rings"), kernel("aio-max-nr is soft", "aio-is-soft"), kernel("somaxconn", "somaxconn"), kernel("swappiness", "swappiness"),
		ask("receives: 68, 27, 5 %", "receive-times"),
	}
}

func judges() []lab.Claim {
	const headers = "include/uapi/linux/io_uring.h"
	return []lab.Claim{
		claims.UnshareFlags.Refuted(unshareFlags, "There is no such file (Linux, kernel/sysctl.c). The way to know is to call io_uring_setup."),
		claims.UringFile.Refuted(uringFile, "There is no such file either; `grep -r io_uring /proc/sys` finds kernel.io_uring_disabled and io_uring_group."),
		claims.RegisterFiles.Refuted(registerFiles,
			"There is no such setting (Documentation/admin-guide/sysctl/kernel.rst knows io_uring_disabled and io_uring_group). Files are registered by each program."),
		claims.TriggerLevel.Refuted(trigLevel,
			"The attribute is rx_trig_bytes (Documentation/ABI/testing/sysfs-tty), and it sets when the UART interrupts. The FIFO is 16 to 128 bytes of silicon."),
		claims.SkipTxen.Refuted("8250: skip_txen", "The setting is skip_txen_test: it leaves out a test that is made once when a port is opened (drivers/tty/serial/8250), not interrupts."),
		claims.SetserialDMA.Compiled("setserial: dma", "All that setserial can change is struct serial_struct (ioctl TIOCSSERIAL), which says nothing of DMA: the driver decides."),
		withoutDMA(claims.DMAUse), withoutDMA(claims.ReadBypassesDMA),
		claims.PortFops.Asked("port without mmap", "A file whose operations have no mmap gives ENODEV. Their name is tty_fops (drivers/tty/tty_io.c) for every tty."),
		claims.Sendfile.Judged("ring: splice", func(v lab.View) (lab.Verdict, bool) {
			_, here, ok := v.Answer("ring: splice")
			return lab.CannotBe(here, "There is none in "+headers+" of any version; IORING_OP_SPLICE (5.7) does it through a pipe."), ok
		}),
		claims.Kernel419.Judged("any file", func(v lab.View) (lab.Verdict, bool) {
			return lab.CannotBe("–", "io_uring came with Linux 5.1 (commit 2b188cc1bb85, March 2019), its option is CONFIG_IO_URING. What was measured on 4.19 was something else."), len(v.Rows) > 0
		}),
		claims.StatxFsync.Judged("ring: statx and ring: fsync", func(v lab.View) (lab.Verdict, bool) {
			statx, one, ok1 := v.Answer("ring: statx")
			fsync, other, ok2 := v.Answer("ring: fsync")
			return lab.Holds(statx && fsync, one+"; "+other, "Since 5.6 and 5.1."), ok1 && ok2
		}),
		claims.StatxNew.Asked("ring: statx is of 6.1", "The numbers are in "+headers+"; statx came with 5.6."),
		claims.SingleIssue.Compiled("ring: SINGLE_ISSUE", "What there is is a flag of the set-up, IORING_SETUP_SINGLE_ISSUER (6.0)."),
		claims.PollApart.Asked("ring: IOPOLL alone", "Both are flags of their own since the first version."),
		claims.LenTruncates.Refuted("ring: statx: len is a size", "io_uring_enter(2): the field len of a statx is its mask."),
		claims.LockThread.Asked("ring: SQPOLL needs a thread", "IORING_SQ_NEED_WAKEUP says that the kernel's thread sleeps; who submits wakes it, from whichever thread."),
		claims.SQWait.Asked("ring: SQ_WAIT waits", "It is for rings with SQPOLL; else io_uring_enter has taken all when it returns, and the flag does nothing."),
		claims.IOPoll.Asked("ring: IOPOLL polls", "Only where the device has queues for polling (NVMe with poll_queues)."),
		claims.SQAffinity.Asked("ring: SQ_AFF binds", "io_uring_setup(2)."),
		claims.SQPollCap.Asked("ring: SQPOLL needs root", "Linux before 5.11 asked for CAP_SYS_ADMIN, 5.11 and 5.12 for CAP_SYS_NICE; see io_uring_setup(2)."),
		claims.ThreeMaps.Asked("ring: needs three maps", "Since 5.4 two do."),
		claims.BrokenLink.Asked("ring: broken link", "Nothing of what follows is done, so that it can be tried again."),
		claims.AioFrees.Refuted("aio-max-nr limits rings", "It limits the older io_setup alone (Documentation/admin-guide/sysctl/fs.rst). 1,024 is also less than the default."),
		claims.AioSoft.Asked("aio-max-nr is soft", "io_setup(2): EAGAIN where nr_events is more than what is left."),
		claims.Somaxconn.Asked("somaxconn", "listen(2). The SYN is sent again after a second, so a client sees a delay."),
		claims.Swappiness.Asked("swappiness", "–"),
		claims.CompletionTimes.Asked("receives: 68, 27, 5 %",
			"The article timed the kernel's function tcp_cleanup_rbuf, which waits for nothing. Here it is from the arrival of data to its being read, in a ping-pong over loopback."),
	}
}

// withoutDMA is for what only a UART with DMA can tell.
func withoutDMA(p lab.Published) lab.Claim {
	return p.Judged(dmaChannel, func(v lab.View) (lab.Verdict, bool) {
		yes, said, ok := v.Answer(dmaChannel)
		if yes {
			said = "a channel is there, but whether it is a UART's is not known"
		}
		return lab.NotHere("a UART that has DMA, with a device at its other end: " + said + "."), ok
	})
}
