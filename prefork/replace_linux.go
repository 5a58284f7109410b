package prefork

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"
)

// replace starts workers in some slots and, when all of them are ready, lets them serve and has the
// old ones drain, which it returns. If one does not become ready it ends the new ones, which have
// served nobody. The caller holds changing.
func (m *Master) replace(ctx context.Context, slots []int, p *program) (old []*child, err error) {
	var fresh []*child
	for _, i := range slots {
		var c *child
		if c, err = m.begin(i, p); err != nil {
			break
		}
		fresh = append(fresh, c)
	}
	if err == nil {
		err = m.allReady(ctx, fresh)
	}
	if err == nil {
		if old, err = m.swap(fresh); err == nil {
			return old, nil
		}
	}
	for _, c := range fresh {
		c.kill()
	}
	for _, c := range fresh {
		<-c.gone
	}
	return nil, err
}

// begin launches a worker, unless the master ends.
func (m *Master) begin(slot int, p *program) (*child, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over {
		return nil, fmt.Errorf("prefork: %w", errEnds)
	}
	return m.launch(slot, p)
}

// allReady waits until new workers are ready. ctx ends with the master.
func (m *Master) allReady(ctx context.Context, fresh []*child) error {
	patience := time.NewTimer(m.cfg.StartFor)
	defer patience.Stop()
	for _, c := range fresh {
		select {
		case <-c.ready:
		case <-c.gone:
			return fmt.Errorf("prefork: %v ended before it was ready: %w", c, c.err)
		case <-patience.C:
			return fmt.Errorf("prefork: %v was not ready within %v", c, m.cfg.StartFor)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// swap lets new workers serve and has the old ones drain.
func (m *Master) swap(fresh []*child) (old []*child, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range fresh {
		if _, there := m.all[c]; !there {
			return nil, fmt.Errorf("prefork: %v ended when it was to serve: %w", c, c.err)
		}
	}
	for _, c := range fresh {
		s := m.slots[c.slot]
		if s.serving != nil {
			old = append(old, s.serving)
		}
		s.serving = c
		if err := c.link.send(packet{Serve: true}); err != nil {
			m.log.Error("a worker cannot be told to serve", "worker", c.String(), "error", err)
			c.kill() // and then it has ended unasked
		}
		if s.lentTo != nil {
			_ = s.lentTo.link.send(packet{Return: true, Slot: s.number}) // an error: it has ended
			s.lentTo = nil
		}
	}
	for _, c := range old {
		m.drain(c)
	}
	return old, nil
}

// drain has a worker end, and kills it at the deadline. The caller holds mu.
func (m *Master) drain(c *child) {
	if c.asked {
		return
	}
	c.asked = true
	m.lendAgain(c)
	if err := c.link.send(packet{Drain: true}); err != nil {
		c.kill()
	}
	m.running.Go(func() {
		deadline := time.NewTimer(m.cfg.DrainFor)
		defer deadline.Stop()
		select {
		case <-c.gone:
		case <-deadline.C:
			m.log.Warn("a worker is killed: it did not end in time", "worker", c.String(), "within", m.cfg.DrainFor)
			c.kill()
		}
	})
}

// lend has a worker accept from the sockets of a slot that has none. The caller holds mu.
func (m *Master) lend(s *slot) {
	if m.sockets.shared || m.over {
		return
	}
	burden := map[*child]int{}
	for _, o := range m.slots {
		if o.lentTo != nil {
			burden[o.lentTo]++
		}
	}
	for {
		var to *child
		for _, o := range m.slots {
			if c := o.serving; c != nil && c.takes && !c.asked && (to == nil || burden[c] < burden[to]) {
				to = c
			}
		}
		if to == nil {
			return // who connects waits at the socket
		}
		if to.link.send(packet{Lend: true, Slot: s.number}, m.sockets.fds(s.number)...) == nil {
			s.lentTo = to
			return
		}
		burden[to] += len(m.slots) // it is about to end
		if burden[to] > 2*len(m.slots) {
			return
		}
	}
}

// lendAgain finds another for what a worker that ends was lent. The caller holds mu.
func (m *Master) lendAgain(c *child) {
	for _, s := range m.slots {
		if s.lentTo == c {
			if s.lentTo = nil; s.serving == nil {
				m.lend(s)
			}
		}
	}
}

// refused finds another for what a worker could not take. It is lent nothing more, so each refuses
// once.
func (m *Master) refused(c *child, number int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.takes = false
	if number < 0 || number >= len(m.slots) || m.slots[number].lentTo != c {
		return
	}
	m.log.Warn("a worker cannot take the sockets of a slot: it has no descriptors left", "worker", c.String(), "slot",
		number)
	s := m.slots[number]
	if s.lentTo = nil; s.serving == nil {
		m.lend(s)
	}
}

// ended does what is to be done when a worker has.
func (m *Master) ended(c *child) {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer close(c.gone)
	delete(m.all, c)
	s := m.slots[c.slot]
	if exit := (*exec.ExitError)(nil); errors.As(c.err, &exit) && !c.killed.Load() {
		s.kills, c.err = m.quota.blame(exit, c.slot, max(s.kills, c.survived))
	}
	s.past.add(c.count.Load(), false)
	m.lendAgain(c)
	if s.serving != c {
		return
	}
	s.serving = nil
	if m.over {
		return
	}
	s.restarts++
	m.orphan(s, fmt.Errorf("%v has ended: %w", c, c.err))
}

// orphan sees to a slot that has no worker, and says why. The caller holds mu.
func (m *Master) orphan(s *slot, why error) {
	m.lend(s)
	m.running.Go(func() { m.revive(s, why) })
}

// revive starts a worker in a slot that has none.
func (m *Master) revive(s *slot, why error) {
	for {
		m.mu.Lock()
		wait, resting := s.backoff.next(&m.cfg, time.Now())
		none := true
		for _, o := range m.slots {
			none = none && o.serving == nil
		}
		m.mu.Unlock()
		if resting && none {
			m.end(fmt.Errorf("prefork: no worker is left: %w; %d ends within %v are the limit", why, m.cfg.Intensity,
				m.cfg.Period))
			return
		}
		m.log.Warn("a worker is started again", "slot", s.number, "in", wait, "after", why, "resting", resting)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-m.life.Done():
			timer.Stop()
			return
		}
		select {
		case m.changing <- struct{}{}: // behind a renewal, too, which may fail
		case <-m.life.Done():
			return
		}
		m.mu.Lock()
		busy := s.serving != nil // a restart came first
		m.mu.Unlock()
		err := error(nil)
		if !busy {
			_, err = m.replace(m.life, []int{s.number}, m.prog)
		}
		<-m.changing
		if err == nil || m.life.Err() != nil {
			return
		}
		why = err // it has ended, or did not begin
		m.mu.Lock()
		s.restarts++
		m.mu.Unlock()
	}
}

// shut drains all workers and waits until they have ended, and everything that waits for them.
func (m *Master) shut() {
	m.end(errAsked) // if it was not that, it was something before
	notify("STOPPING=1")
	m.mu.Lock()
	m.over = true
	for c := range m.all {
		if m.slots[c.slot].serving == c {
			m.drain(c)
		}
	}
	m.mu.Unlock()
	m.running.Wait()
}

func (m *Master) killAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.all {
		c.kill()
	}
}

// notify tells systemd, if that wants to know: see sd_notify(3).
func notify(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	if c, err := net.Dial("unixgram", path); err == nil {
		_, _ = c.Write([]byte(state))
		_ = c.Close()
	}
}
