package recorder

import (
	"os"
	"slices"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/isolate"
)

// reading is how the reader of a configuration reads.
func reading(cfg config.Config) isolate.Reading {
	r := isolate.Reading{Config: cfg.Read.Reader()}
	if cfg.KeepsTime() {
		r.Cell = isolate.Cell{Priority: cfg.Cell.Priority, CPU: cfg.Cell.CPU}
	}
	return r
}

// deviceOf is what the reader needs to know of the device of a source.
func deviceOf(s config.Source) (isolate.Kind, string) {
	switch {
	case s.Serial != nil:
		return isolate.Serial, s.Serial.Port
	case s.UDP != nil:
		return isolate.Datagrams, s.UDP.Listen
	case s.TCP.All():
		return isolate.Given, s.TCP.Listen
	case s.TCP.Dial != "":
		return isolate.Dialled, s.TCP.Dial
	case s.TCP.Peers == config.PeersFirst:
		return isolate.First, s.TCP.Listen
	}
	return isolate.Newest, s.TCP.Listen
}

// Size of a spool: what comes while the recorder is started again, and more.
const (
	spoolTime  = 4 * time.Second
	cellTime   = 10 * time.Second // of a reader that keeps time while the recorder may be starved
	leastSpool = 256 << 10
	mostSpool  = 8 << 20
	mostCell   = 32 << 20 // of a reader that keeps time
	netSpool   = 4 << 20  // of a source whose rate nobody knows
	peerSpool  = 1 << 20  // of one of many that connect: the kernel holds what has no room
)

// SpoolBytes is how much memory the spool of a source takes for its bytes.
func SpoolBytes(s config.Source, keepsTime bool) int {
	switch {
	case s.TCP.All():
		return peerSpool
	case s.Serial == nil:
		return netSpool
	}
	long, most := spoolTime, mostSpool
	if keepsTime {
		long, most = cellTime, mostCell
	}
	n := s.Serial.Line().BytesPerSecond() * long.Seconds()
	return max(leastSpool, min(int(n), most))
}

// keeps takes in how the reader keeps time.
func (i *isolation) keeps(e isolate.Entry) {
	k, err := isolate.CellOf(e)
	if err != nil {
		i.log.Error("what the reader says of how it keeps time cannot be read", "error", err)
		return
	}
	i.told.Lock()
	defer i.told.Unlock()
	i.kept = k
}

// Processes are those that read and record: this one, or the three of an isolated recorder.
func (r *Recorder) Processes() []isolate.Process {
	own := []isolate.Process{{Role: isolate.Recorder, PID: os.Getpid(), Since: r.began}}
	if r.iso == nil {
		return own
	}
	r.iso.told.Lock()
	defer r.iso.told.Unlock()
	if len(r.iso.processes) == 0 { // of a keeper that tells later, or of none
		return own
	}
	all := slices.Clone(r.iso.processes)
	for i, p := range all {
		if kept := r.iso.kept; p.Role == isolate.Reader && p.PID != 0 && p.PID == kept.PID {
			all[i].Cell = &kept
		}
	}
	return all
}
