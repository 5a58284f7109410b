// Package kernelfacts asks whether what the articles say of the kernel is so.
package kernelfacts

import (
	"fmt"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/claims"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/uring"
)

var (
	disabledFile  = file("/proc/sys/kernel/io_uring_disabled").But("the switch that there is")
	unshareFlags  = file("/proc/sys/kernel/unshare_flags")
	registerFiles = file("/proc/sys/kernel/io_uring_register_files")
	uringFile     = file("/proc/sys/fs/io_uring")
	trigBytes     = file("/sys/class/tty/ttyS0/rx_trig_bytes").But("the trigger that there is, where a UART has a FIFO")
	trigLevel     = file("/sys/class/tty/ttyS0/device/rx_trig_lvl")
	dmaChannel    = file("/sys/class/dma/dma0chan0/bytes_transferred")
	articleFiles  = []*lab.Contestant{unshareFlags, registerFiles, uringFile, trigLevel, dmaChannel}

	skipTxenSet  = ask("8250: skip_txen", skipTxen)
	setserialDMA = inC("serial_dma.c", "setserial: dma", "")
	noMap        = ask("port without mmap", portHasNoMap)

	splice = lab.Ours("ring: splice", ringHas(uring.OpSplice, "splice"))
	fsync  = lab.Ours("ring: fsync", ringHas(uring.OpFsync, "fsync"))
	statx  = lab.Ours("ring: statx", ringHas(uring.OpStatx, "statx"))

	threeMaps   = ring("needs three maps", "three-maps")
	sqpollRoot  = ring("SQPOLL needs root", "sqpoll-needs-root")
	sqWait      = ring("SQ_WAIT waits", "sq-wait")
	ioPoll      = ring("IOPOLL polls", "iopoll")
	pollApart   = ring("IOPOLL alone", "poll-apart")
	sqAffinity  = ring("SQ_AFF binds", "sq-affinity")
	statxNew    = ring("statx is of 6.1", "statx-is-new")
	lenIsSize   = ring("statx: len is a size", "len-is-size")
	singleIssue = inC("single_issue.c", "ring: SINGLE_ISSUE", "")
	breaking    = ask("ring: broken link", brokenLink)
	pollThread  = ask("ring: SQPOLL needs a thread", pollerNeedsThread)

	aioLimits  = kernel("aio-max-nr limits rings", "aio-limits-rings")
	aioSoft    = kernel("aio-max-nr is soft", "aio-is-soft")
	somaxconn  = kernel("somaxconn", "somaxconn")
	swappiness = kernel("swappiness", "swappiness")
	sendfile   = inC("op_sendfile.c", "ring: sendfile", "")
	option     = ask("CONFIG_IOURING", kernelOption)
	receives   = ask("receives: most within 8 µs", receiveTimes)
)

func file(path string) *lab.Contestant { return lab.Ours(path, fileIsThere(path)) }

func ask(name string, try func(*contestant.Turn) (contestant.Finding, error)) *lab.Contestant {
	return lab.Ours(name, contestant.Asks(try))
}

func inC(source, name, fact string) *lab.Contestant {
	return lab.C(source, "apt install gcc linux-libc-dev").As(name, "fact", "ask="+fact)
}

func ring(name, fact string) *lab.Contestant { return inC("facts_uring.c", "ring: "+name, fact) }

func kernel(name, fact string) *lab.Contestant { return inC("facts_kernel.c", name, fact) }

func init() {
	lab.Register(&lab.Experiment{
		Name: "kernel-facts", Plane: lab.Laboratory,
		Question: "Is what the articles say of the kernel so?",
		Method: "Each contestant looks for a file, asks the kernel for something by the system call itself, or is a program that compiles only if the kernel's interface has what it names. " +
			"It answers once, by yes or no, and says what shows it.",
		Metrics: []lab.Metric{lab.Answer}, Once: true,
		Contestants: []*lab.Contestant{
			disabledFile, unshareFlags, registerFiles, uringFile, trigBytes, trigLevel, dmaChannel, skipTxenSet,
			setserialDMA, noMap, splice, fsync, statx,
			threeMaps, sqpollRoot, sqWait, ioPoll, pollApart, sqAffinity, statxNew, lenIsSize, singleIssue, breaking,
			pollThread,
			aioLimits, aioSoft, somaxconn, swappiness, sendfile, option, receives,
		},
		Advice: func(v lab.View) string {
			if len(v.Rows) == 0 {
				return ""
			}
			absent := 0
			for _, f := range articleFiles {
				if yes, _, ok := v.Answer(f); ok && !yes {
					absent++
				}
			}
			return fmt.Sprintf("Of %d files that articles name to check features by, %d are not there", len(articleFiles), absent) +
				lab.Or(absent > 0, ": `tallywheel doctor` tries the features themselves.", ".")
		},
		Claims: judges(),
	})
}

func judges() []lab.Claim {
	const headers = "include/uapi/linux/io_uring.h"
	return []lab.Claim{
		claims.UnshareFlags.Refuted(unshareFlags,
			"There is no such file (Linux, kernel/sysctl.c). The way to know is to call io_uring_setup."),
		claims.UringFile.Refuted(uringFile,
			"There is no such file either; `grep -r io_uring /proc/sys` finds kernel.io_uring_disabled and io_uring_group."),
		claims.RegisterFiles.Refuted(registerFiles,
			"There is no such setting (Documentation/admin-guide/sysctl/kernel.rst knows io_uring_disabled and io_uring_group). Files are registered by each program."),
		claims.TriggerLevel.Refuted(trigLevel,
			"The attribute is rx_trig_bytes (Documentation/ABI/testing/sysfs-tty), and it sets when the UART interrupts. The FIFO is 16 to 128 bytes of silicon."),
		claims.SkipTxen.Refuted(skipTxenSet,
			"The setting is skip_txen_test: it leaves out a test that is made once when a port is opened (drivers/tty/serial/8250), not interrupts."),
		claims.SetserialDMA.Compiled(setserialDMA,
			"All that setserial can change is struct serial_struct (ioctl TIOCSSERIAL), which says nothing of DMA: the driver decides."),
		withoutDMA(claims.DMAUse), withoutDMA(claims.ReadBypassesDMA),
		claims.PortFops.Asked(noMap,
			"A file whose operations have no mmap gives ENODEV. Their name is tty_fops (drivers/tty/tty_io.c) for every tty.", ""),
		claims.Sendfile.Compiled(sendfile,
			"There is none in "+headers+" of any version; IORING_OP_SPLICE (5.7) does it through a pipe."),
		claims.Kernel419.Refuted(option,
			"io_uring came with Linux 5.1 (commit 2b188cc1bb85, March 2019), its option is CONFIG_IO_URING. What was measured on 4.19 was something else."),
		claims.StatxFsync.Judged("ring: statx and ring: fsync", func(v lab.View) (lab.Verdict, bool) {
			stats, one, ok1 := v.Answer(statx)
			syncs, other, ok2 := v.Answer(fsync)
			return lab.Holds(stats && syncs, one+"; "+other, "Since 5.6 and 5.1."), ok1 && ok2
		}),
		claims.StatxNew.Asked(statxNew, "",
			"The numbers are in "+headers+"; statx came with 5.6."),
		claims.SingleIssue.Compiled(singleIssue,
			"What there is is a flag of the set-up, IORING_SETUP_SINGLE_ISSUER (6.0)."),
		claims.PollApart.Asked(pollApart, "Both are flags of their own since the first version.", ""),
		claims.LenTruncates.Refuted(lenIsSize, "io_uring_enter(2): the field len of a statx is its mask."),
		claims.LockThread.Asked(pollThread,
			"",
			"IORING_SQ_NEED_WAKEUP says that the kernel's thread sleeps; who submits wakes it, from whichever thread."),
		claims.SQWait.Asked(sqWait,
			"It is for rings with SQPOLL; else io_uring_enter has taken all when it returns, and the flag does nothing.", ""),
		claims.IOPoll.Asked(ioPoll, "Only where the device has queues for polling (NVMe with poll_queues).", "Only where the device has queues for polling (NVMe with poll_queues)."),
		claims.SQAffinity.Asked(sqAffinity, "io_uring_setup(2).", ""),
		claims.SQPollCap.Asked(sqpollRoot,
			"This is a kernel that asks for it: Linux before 5.11 did, and 5.11 and 5.12 for CAP_SYS_NICE; see io_uring_setup(2).",
			"Linux before 5.11 asked for CAP_SYS_ADMIN, 5.11 and 5.12 for CAP_SYS_NICE; see io_uring_setup(2)."),
		claims.ThreeMaps.Asked(threeMaps, "",
			"Since 5.4 two do."),
		claims.BrokenLink.Asked(breaking, "Nothing of what follows is done, so that it can be tried again.", ""),
		claims.AioFrees.Refuted(aioLimits,
			"It limits the older io_setup alone (Documentation/admin-guide/sysctl/fs.rst). 1,024 is also less than the default."),
		claims.AioSoft.Asked(aioSoft, "",
			"io_setup(2): EAGAIN where nr_events is more than what is left."),
		claims.Somaxconn.Asked(somaxconn, "listen(2). The SYN is sent again after a second, so a client sees a delay.", ""),
		claims.Swappiness.Asked(swappiness,
			"With 0 no swap is begun before what is free and what is of files falls below the high watermark of a zone (Documentation/admin-guide/sysctl/vm.rst).", ""),
		claims.CompletionTimes.Judged(receives.Name, func(v lab.View) (lab.Verdict, bool) {
			_, said, ok := v.Answer(receives)
			if !ok {
				said = "not asked here"
			}
			return lab.NotHere("the load of which these are shares: the article calls them typical and names none. Its program times the kernel's function tcp_cleanup_rbuf, which waits for nothing; here it is from the arrival of data to its being read.").
				As("%s", said), len(v.Rows) > 0
		}),
	}
}

// withoutDMA is for what only a UART with DMA can tell.
func withoutDMA(p lab.Published) lab.Claim {
	return p.Judged(dmaChannel.Name, func(v lab.View) (lab.Verdict, bool) {
		yes, said, ok := v.Answer(dmaChannel)
		if yes {
			said = "a channel is there, but whether it is a UART's is not known"
		}
		return lab.NotHere("a UART that has DMA, with a device at its other end: " + said + "."), ok
	})
}
