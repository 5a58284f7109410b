// Package experiments lists the questions that the laboratory puts to a machine, each in a folder
// of its own.
package experiments

import (
	"github.com/tallywheel/tallywheel/lab"
	binarysize "github.com/tallywheel/tallywheel/lab/experiments/binary-size"
	"github.com/tallywheel/tallywheel/lab/experiments/crc"
	filebuffer "github.com/tallywheel/tallywheel/lab/experiments/file-buffer"
	filelines "github.com/tallywheel/tallywheel/lab/experiments/file-lines"
	filemisuse "github.com/tallywheel/tallywheel/lab/experiments/file-misuse"
	filemmapseek "github.com/tallywheel/tallywheel/lab/experiments/file-mmap-seek"
	filerandom "github.com/tallywheel/tallywheel/lab/experiments/file-random"
	filesequential "github.com/tallywheel/tallywheel/lab/experiments/file-sequential"
	httpbodies "github.com/tallywheel/tallywheel/lab/experiments/http-bodies"
	httpconnect "github.com/tallywheel/tallywheel/lab/experiments/http-connect"
	httpfiles "github.com/tallywheel/tallywheel/lab/experiments/http-files"
	httpidle "github.com/tallywheel/tallywheel/lab/experiments/http-idle"
	httpjson "github.com/tallywheel/tallywheel/lab/experiments/http-json"
	httpplaintext "github.com/tallywheel/tallywheel/lab/experiments/http-plaintext"
	httptail "github.com/tallywheel/tallywheel/lab/experiments/http-tail"
	kernelfacts "github.com/tallywheel/tallywheel/lab/experiments/kernel-facts"
	logdurable "github.com/tallywheel/tallywheel/lab/experiments/log-durable"
	logthroughput "github.com/tallywheel/tallywheel/lab/experiments/log-throughput"
	"github.com/tallywheel/tallywheel/lab/experiments/noise"
	"github.com/tallywheel/tallywheel/lab/experiments/pool"
	ringcopy "github.com/tallywheel/tallywheel/lab/experiments/ring-copy"
	runtimetuning "github.com/tallywheel/tallywheel/lab/experiments/runtime-tuning"
	serialbuffer "github.com/tallywheel/tallywheel/lab/experiments/serial-buffer"
	serialmmap "github.com/tallywheel/tallywheel/lab/experiments/serial-mmap"
	serialmodel "github.com/tallywheel/tallywheel/lab/experiments/serial-model"
	serialports "github.com/tallywheel/tallywheel/lab/experiments/serial-ports"
	serialstrategies "github.com/tallywheel/tallywheel/lab/experiments/serial-strategies"
	"github.com/tallywheel/tallywheel/lab/experiments/sqpoll"
	"github.com/tallywheel/tallywheel/lab/experiments/syscalls"
	uringnop "github.com/tallywheel/tallywheel/lab/experiments/uring-nop"
)

// All lists the experiments, plane by plane.
func All() []*lab.Experiment {
	return []*lab.Experiment{
		serialstrategies.Experiment(), serialports.Experiment(), serialbuffer.Experiment(), serialmodel.Experiment(), serialmmap.Experiment(),
		ringcopy.Experiment(), pool.Experiment(), crc.Experiment(),
		filerandom.Experiment(), filesequential.Experiment(), filebuffer.Experiment(), filelines.Experiment(), filemmapseek.Experiment(), filemisuse.Experiment(), syscalls.Experiment(), uringnop.Experiment(),
		logdurable.Experiment(), logthroughput.Experiment(),
		httpplaintext.Experiment(), httpjson.Experiment(), httpbodies.Experiment(), httpfiles.Experiment(), httpconnect.Experiment(), httptail.Experiment(), httpidle.Experiment(),
		runtimetuning.Experiment(), binarysize.Experiment(), sqpoll.Experiment(),
		noise.Experiment(), kernelfacts.Experiment(),
	}
}
