package prefork

import (
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// Connections are shared out by weight in the kernel: a program of a few instructions at the
// sockets of an address takes a number of chance for each connection, and says by it which slot's
// socket gets it. The master replaces the program each second.

const (
	weighEvery = time.Second
	leastFree  = 0.05 // of 1 − load: who is full gets little, but learns so that it is not
)

// look is a slot as it was when it was last looked at.
type look struct {
	at  time.Time
	pid int
	cpu time.Duration
}

// balance begins to share connections out by weight, and says how they are shared.
func (m *Master) balance() (how string) {
	if len(m.cfg.Weights) == 0 {
		for _, f := range m.sockets.slots[0] {
			_ = sys.ShareOut(int(f.Fd()), nil) // what a master before this may have said; an error: nothing
		}
		return "hash"
	}
	before := make([]look, len(m.slots))
	if err := m.weigh(before); err != nil {
		m.log.Warn("connections are shared out by the kernel's hash: it takes no weights", "error", err)
		return "hash"
	}
	m.running.Go(func() {
		tick := time.NewTicker(weighEvery)
		defer tick.Stop()
		for {
			select {
			case <-m.life.Done():
				return
			case <-tick.C:
			}
			if err := m.weigh(before); err != nil {
				m.log.Warn("weights stay as they were", "error", err)
				return
			}
		}
	})
	return "weights"
}

// weigh looks at the slots and tells the kernel their shares.
func (m *Master) weigh(before []look) error {
	shares := sharesOf(&m.cfg, m.Status(), before, time.Now())
	m.mu.Lock()
	for i, s := range m.slots {
		s.share = shares[i]
	}
	m.mu.Unlock()
	for _, f := range m.sockets.slots[0] { // the sockets of an address are a group
		if err := sys.ShareOut(int(f.Fd()), shares); err != nil {
			return err
		}
	}
	return nil
}

// sharesOf is what part of new connections each slot is to get.
func sharesOf(cfg *Config, slots []WorkerStatus, before []look, now time.Time) []float64 {
	opened := int64(0)
	for _, st := range slots {
		opened += st.Opened
	}
	shares, sum := make([]float64, len(slots)), 0.0
	for i, st := range slots {
		if st.PID == 0 {
			before[i] = look{}
			continue // no worker, no share
		}
		free := max(leastFree, 1-loadOf(cfg, &st, &before[i], opened, now))
		before[i] = look{now, st.PID, st.CPU}
		shares[i] = cfg.Weights[i%len(cfg.Weights)] * free
		sum += shares[i]
	}
	for i := range shares {
		if sum > 0 {
			shares[i] /= sum
		} else {
			shares[i] = 1 / float64(len(shares))
		}
	}
	return shares
}

// loadOf is the load of a slot, 0 to 1.
func loadOf(cfg *Config, st *WorkerStatus, before *look, opened int64, now time.Time) (load float64) {
	if before.pid == st.PID && now.After(before.at) {
		cpus := float64(cfg.Procs)
		if cfg.Limit.CPU > 0 {
			cpus = min(cpus, cfg.Limit.CPU)
		}
		load = (st.CPU - before.cpu).Seconds() / now.Sub(before.at).Seconds() / cpus
	}
	if cfg.Limit.Memory > 0 {
		load = max(load, float64(st.Resident)/float64(cfg.Limit.Memory))
	}
	switch {
	case cfg.MaxConns > 0:
		load = max(load, float64(st.Opened)/float64(cfg.MaxConns))
	case opened > 0:
		load = max(load, float64(st.Opened)/float64(opened))
	}
	return min(load, 1)
}
