package prefork

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// Master is a hold on the workers, for the master's process. Its methods may be called from any
// goroutine.
type Master struct {
	cfg     Config
	log     *slog.Logger
	sockets *sockets
	quota   *quota
	starter sys.Starter // of the workers

	life    context.Context // ends when the master is to end
	end     context.CancelCauseFunc
	running sync.WaitGroup // the goroutines that wait for workers, or to start one

	signals  chan os.Signal
	changing chan struct{} // a token: who has it may start and replace workers

	mu    sync.Mutex
	renew chan struct{} // closed while the master is about to become another program
	slots []*slot
	all   map[*child]struct{} // that have not ended
	prog  *program            // replaced while changing is held
	over  bool                // no worker may start any more
}

// slot is the place of a worker. Its fields are guarded by Master.mu.
type slot struct {
	number   int
	serving  *child // nil: there is none
	lentTo   *child // accepts from the slot's sockets meanwhile
	restarts int    // after ends that nobody asked for
	past     Count  // of those that have ended
	backoff  backoff
	share    float64 // of new connections
	kills    int     // for memory, of quota.kills, up to the last one that a worker's end was put down to
}

// runMaster is Run in the master.
func runMaster(ctx context.Context, cfg Config) (err error) {
	if cfg.Path == "" {
		if cfg.Path, err = os.Executable(); err != nil {
			return fmt.Errorf("prefork: %w; set Config.Path", err)
		}
	}
	before, rehearses, err := inheritedEstate(&cfg)
	if err != nil || rehearses {
		return err
	}
	m := &Master{
		cfg: cfg, log: cfg.Log, changing: make(chan struct{}, 1), signals: make(chan os.Signal, 8),
		all: map[*child]struct{}{}, renew: make(chan struct{}),
	}
	defer func() { err = sys.TooFewFiles(err) }()
	m.life, m.end = context.WithCancelCause(ctx)
	defer m.end(nil)
	defer m.release()
	if before != nil {
		err = m.take(before)
	} else {
		err = m.acquire()
	}
	if err != nil {
		return err
	}
	if err := sys.Subreaper(); err != nil {
		return fmt.Errorf("prefork: %w", err)
	}
	m.starter = sys.NewStarter()
	defer m.starter.Close()
	for i := range cfg.Workers {
		m.slots = append(m.slots, &slot{number: i, share: 1 / float64(cfg.Workers)})
	}
	signal.Notify(m.signals, heard...)
	deaf := make(chan struct{})
	go func() {
		defer close(deaf)
		m.hear()
	}()
	if err = m.first(before); err == nil {
		<-m.life.Done()
		err = context.Cause(m.life)
	}
	if ctx.Err() != nil || errors.Is(context.Cause(m.life), errAsked) {
		err = nil // it was asked to end, and what failed did so for that
	}
	m.shut()
	m.changing <- struct{}{} // nobody changes anything any more
	signal.Stop(m.signals)
	close(m.signals)
	<-deaf
	return err
}

// acquire gets what a master needs that is the first.
func (m *Master) acquire() (err error) {
	if m.prog, err = choose(&m.cfg); err != nil {
		return err
	}
	if m.sockets, err = listen(&m.cfg); err != nil {
		return err
	}
	m.quota, err = newQuota("/", &m.cfg, "")
	return err
}

func (m *Master) release() {
	m.prog.close()
	m.quota.close()
	_ = m.sockets.close() // nobody is left whom an error could tell anything
}

// heard are the signals that a master obeys.
var heard = []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR2}

// errAsked ends a master without an error.
var errAsked = errors.New("asked to end")

// errEnds ends a change of workers or master.
var errEnds = errors.New("the master ends")

// first starts the workers, or takes over those of the program that was the master before.
func (m *Master) first(before *estate) (err error) {
	all := make([]int, len(m.slots))
	for i := range all {
		all[i] = i
	}
	m.changing <- struct{}{}
	if before != nil {
		err = m.adopt(before)
	} else {
		_, err = m.replace(m.life, all, m.prog)
	}
	<-m.changing
	if err != nil {
		return err
	}
	m.log.Info("workers serve", "workers", len(m.slots), "on", m.sockets.addresses(), "quota", m.quota.how, "shares",
		m.balance())
	m.askSurvivors()
	notify("READY=1")
	if m.cfg.Started != nil {
		m.cfg.Started(m)
	}
	return nil
}

// hear obeys signals. One that has ended the context of Run, too, as signal.NotifyContext has it,
// asks once.
func (m *Master) hear() {
	asked := false
	var changes sync.WaitGroup
	defer changes.Wait() // and tells what became of them
	ctx := context.Background()
	for s := range m.signals {
		if obeyed, is := s.(mark); is {
			close(obeyed)
			continue
		}
		switch s {
		case syscall.SIGHUP:
			changes.Go(func() { m.tell("restart", m.Restart(ctx)) })
		case syscall.SIGUSR2:
			changes.Go(func() {
				err := m.Upgrade(ctx)
				if m.tell("upgrade", err); err == nil {
					m.tell("renewal of the master", m.Renew(ctx)) // it comes back with an error only
				}
			})
		default:
			if asked {
				m.log.Warn("the workers are killed: asked to end a second time")
				m.killAll()
			}
			asked = true
			m.end(errAsked)
		}
	}
}

func (m *Master) tell(what string, err error) {
	if errors.Is(err, errEnds) {
		m.log.Warn(what+" is given up", "why", err)
		return
	}
	if err != nil {
		m.log.Error(what+" failed", "error", err)
		return
	}
	m.log.Info(what + " done")
}

// Listeners are the sockets of Config.MasterListen. They stay open over [Master.Renew].
func (m *Master) Listeners() (all []net.Listener, err error) {
	for _, f := range m.sockets.own {
		ln, lerr := net.FileListener(f)
		if err = errors.Join(err, lerr); lerr == nil {
			all = append(all, ln)
		}
	}
	return all, err
}

// Addresses are those that the workers serve at.
func (m *Master) Addresses() []string { return m.sockets.addresses() }

// Restart replaces the workers one after the other by new ones of the same program. It returns when
// the last old one has ended, or at the first new one that does not become ready: its predecessor
// goes on.
func (m *Master) Restart(ctx context.Context) error {
	if err := m.change(ctx); err != nil {
		return err
	}
	defer func() { <-m.changing }()
	ctx, cancel := m.within(ctx)
	defer cancel()
	var old []*child
	var err error
	for i := range m.slots {
		var left []*child
		if left, err = m.replace(ctx, []int{i}, m.prog); err != nil {
			break
		}
		old = append(old, left...)
	}
	return errors.Join(err, await(ctx, old))
}

// Upgrade replaces all workers by those of the program that lies at Config.Path now. The new ones
// serve when all of them are ready; if one is not, all are ended, the old ones go on, and the error
// says why. It returns when the last old one has ended. The master itself goes on as it is, until
// [Master.Renew]; but the new program has to show before all else that it could be one.
func (m *Master) Upgrade(ctx context.Context) error {
	if err := m.change(ctx); err != nil {
		return err
	}
	defer func() { <-m.changing }()
	ctx, cancel := m.within(ctx)
	defer cancel()
	next, err := choose(&m.cfg)
	if err != nil {
		return fmt.Errorf("%w; the old workers go on", err)
	}
	all := make([]int, len(m.slots))
	for i := range all {
		all[i] = i
	}
	var old []*child
	if err = m.rehearse(ctx, next); err == nil {
		old, err = m.replace(ctx, all, next)
	}
	if err != nil {
		next.close()
		if m.life.Err() == nil {
			err = fmt.Errorf("%w; the old workers go on", err)
		}
		return err
	}
	m.mu.Lock()
	m.prog, next = next, m.prog
	m.mu.Unlock()
	next.close()
	return await(ctx, old)
}

// change takes the token, but not behind a renewal, which would not answer.
func (m *Master) change(ctx context.Context) error {
	m.mu.Lock()
	renewal := m.renew
	m.mu.Unlock()
	select {
	case <-renewal:
		return ErrRenewing
	case m.changing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-m.life.Done():
		return fmt.Errorf("prefork: %w", errEnds)
	}
}

// within is ctx that ends with the master.
func (m *Master) within(ctx context.Context) (within context.Context, cancel func()) {
	within, end := context.WithCancelCause(ctx)
	if m.life.Err() != nil {
		end(errEnds) // AfterFunc does that later
	}
	stop := context.AfterFunc(m.life, func() { end(errEnds) })
	return within, func() {
		stop()
		end(nil)
	}
}

// await waits until workers have ended that others have replaced.
func await(ctx context.Context, old []*child) error {
	for _, c := range old {
		select {
		case <-c.gone:
		case <-ctx.Done():
			return fmt.Errorf("prefork: new workers serve, and %v has not ended yet: %w", c, context.Cause(ctx))
		}
	}
	return nil
}

// WorkerStatus is a slot as it is now.
type WorkerStatus struct {
	Slot     int
	PID      int       // 0: there is none, its connections wait or are taken by another
	Since    time.Time // the start of the worker
	Restarts int       // after ends that nobody asked for, also before a worker was ready
	LentTo   int       // the worker that serves the slot's sockets meanwhile, by its slot; -1: none
	Count              // of all workers of the slot so far
	CPU      time.Duration
	Resident int64   // bytes
	Share    float64 // of new connections, 0 to 1; by the hash all have the same
}

// Status lists the slots. Counts are as the workers last told, at most a second ago.
func (m *Master) Status() []WorkerStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]WorkerStatus, len(m.slots))
	for i, s := range m.slots {
		st := &all[i]
		*st = WorkerStatus{Slot: i, Restarts: s.restarts, Count: s.past, LentTo: -1, Share: s.share}
		for c := range m.all { // the one that serves, and those that drain
			if c.slot == i {
				st.add(c.count.Load(), true)
			}
		}
		if s.lentTo != nil {
			st.LentTo = s.lentTo.slot
		}
		if s.serving != nil {
			st.PID, st.Since = s.serving.pid, s.serving.since
			st.CPU, st.Resident, _ = sys.ProcessUsage(st.PID)
		}
	}
	return all
}

// add adds what another worker has done; live: what it is at, too.
func (c *Count) add(o *Count, live bool) {
	c.Answered += o.Answered
	c.Refused += o.Refused
	if live {
		c.InFlight += o.InFlight
		c.Waiting += o.Waiting
		c.Opened += o.Opened
	}
}
