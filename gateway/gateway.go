// Package gateway is the recorder: it opens the sources, has them read, framed and booked, keeps the log, and shows all of
// it over HTTP.
//
// # Concepts
//
// Each source has a lane, which takes bytes from the reader through the framing and the books into the log, and a port, which
// opens the device and opens it again when it is gone. Commits of the log come back to the lanes, which post what has
// been stored, and what is durable. A sheet asks every lane what it holds, so it balances at any moment.
//
// # Files beside the log's segments
//
// streams.json names the sources by the stream numbers of records; sheet.json is the sheet of this start, renewed every
// second; sheets.ndjson holds those of earlier starts.
package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/internal/hist"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/reader"
	"github.com/tallywheel/tallywheel/seglog"
)

// Gateway is a running recorder.
type Gateway struct {
	cfg     Config
	slog    *slog.Logger
	log     *seglog.Log
	reader  reader.Reader
	streams *Streams
	since   int64
	earlier *StartSheet // of the start before this one; nil if there was none

	chains  asyncfile.ChainStats
	syncs   *hist.Histogram
	history *history
	commits commits

	mu    sync.Mutex // guards ports
	ports []*port

	quit chan struct{}
	done sync.WaitGroup
}

// commits hands the newest commit to the settling goroutine.
type commits struct {
	mu   sync.Mutex
	last seglog.Commit
	news chan struct{}
}

func (c *commits) put(n seglog.Commit) {
	c.mu.Lock()
	if c.last.Err != nil {
		n.Err = c.last.Err
	}
	c.last = n
	c.mu.Unlock()
	select {
	case c.news <- struct{}{}:
	default:
	}
}

func (c *commits) get() seglog.Commit {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// Start opens the log and the sources. A source that cannot be opened yet is tried again and again; only a configuration or
// a log that cannot work is an error.
func Start(cfg Config, logger *slog.Logger) (*Gateway, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	g := &Gateway{
		cfg: cfg, slog: logger, since: time.Now().UnixNano(), syncs: hist.New(), history: newHistory(),
		commits: commits{news: make(chan struct{}, 1)}, quit: make(chan struct{}),
	}
	if err := g.openLog(); err != nil {
		return nil, err
	}
	var err error
	if g.reader, err = reader.New(cfg.Read.reader()); err != nil {
		return nil, errors.Join(err, g.log.Close())
	}
	g.done.Go(g.settle)
	for _, s := range cfg.Sources {
		if err := g.add(s); err != nil {
			_, stopErr := g.Stop("could not start")
			return nil, errors.Join(err, stopErr)
		}
	}
	first := g.startSheet("") // a kill in the first second must leave a sheet, too
	if err := first.save(cfg.Log.Dir, true); err != nil {
		_, stopErr := g.Stop("could not start")
		return nil, errors.Join(err, stopErr)
	}
	g.done.Go(g.tick)
	return g, nil
}

func (g *Gateway) openLog() error {
	c := g.cfg.Log
	dir, err := logFiles(c, &g.chains, g.slog)
	if err != nil {
		return err
	}
	full := seglog.StopWhenFull
	if c.OnFull == "drop-oldest" {
		full = seglog.DropOldest
	}
	g.log, err = seglog.Open(seglog.Config{
		FS: dir, SegmentBytes: int64(c.Segment), Sync: syncPolicies[c.Sync],
		BatchRecords: c.Records, BatchDelay: c.Delay, SyncInterval: c.Interval,
		KeepBytes: int64(c.Keep.Size), KeepAge: c.Keep.Age, OnFull: full, Chain: c.Linked,
		OnCommit: func(c seglog.Commit) {
			if c.Synced {
				g.syncs.Record(c.Took, 1)
			}
			g.commits.put(c)
		},
	})
	if err != nil {
		return fmt.Errorf("log %s: %w", c.Dir, err)
	}
	if r := g.log.Recovered(); r.CutAt != "" {
		g.slog.Warn("a torn tail was cut: those bytes had not been durable", "at", r.CutAt, "bytes", r.CutBytes)
	}
	g.streams, err = LoadStreams(c.Dir)
	if err == nil {
		g.earlier, err = loadStart(c.Dir)
	}
	if err == nil && g.earlier != nil {
		err = g.takeOver()
	}
	if err != nil {
		return errors.Join(err, g.log.Close())
	}
	return nil
}

// takeOver closes the books of the start before this one, if it could not do so itself.
func (g *Gateway) takeOver() error {
	e := g.earlier
	last, err := e.replay(g.log, g.streams)
	if err != nil {
		return err
	}
	if e.End == "" {
		e.End = causeKilled
		g.slog.Warn("the start before this one ended without notice; its last sheet is kept", "at", e.Sheet.At)
		if err := e.archive(g.cfg.Log.Dir); err != nil {
			return err
		}
	}
	e.Sheet.At = max(e.Sheet.At, ledger.Time(last))
	return nil
}

// add starts a source.
func (g *Gateway) add(s SourceConfig) error {
	stream, err := g.streams.number(Stream{Source: s.ID, Frame: s.Frame.Kind})
	if err != nil {
		return err
	}
	var waste uint32
	if s.Quarantine {
		if waste, err = g.streams.number(Stream{Source: s.ID, Frame: s.Frame.Kind, Quarantine: true}); err != nil {
			return err
		}
	}
	l, err := newLane(s, g.log, stream, waste)
	if err != nil {
		return fmt.Errorf("source %s: %w", s.ID, err)
	}
	if e := g.earlier; e != nil && time.Since(time.Unix(0, int64(e.Sheet.At))) < resumeLimit {
		if ps, ok := e.Positions[s.ID]; ok {
			l.resume(ps, int64(e.Sheet.At))
		}
	}
	p, err := startPort(l, g.read, g.slog)
	if err != nil {
		return fmt.Errorf("source %s: %w", s.ID, err)
	}
	g.mu.Lock()
	g.ports = append(g.ports, p)
	g.mu.Unlock()
	return nil
}

// read has a device read into its lane.
func (g *Gateway) read(l *lane, d device) (reader.Handle, error) {
	var h reader.Handler = l
	hold := 0
	if l.cfg.UDP != nil {
		hold = 128 << 10 // a datagram has up to 64 KiB and must fit as a whole
	}
	if g.cfg.Read.Strategy == pipelineStrategy {
		h = newPipeline(l)
	}
	return g.reader.Add(reader.Port{
		FD: d.fd(), Handler: h, Silence: l.dec.Silence(), Messages: l.cfg.UDP != nil, Hold: hold,
	})
}

// settle brings commits back to the lanes.
func (g *Gateway) settle() {
	for {
		select {
		case <-g.quit:
			return
		case <-g.commits.news:
		}
		c, now := g.commits.get(), time.Now().UnixNano()
		for _, p := range g.snapshot() {
			p.lane.settle(c, now)
		}
	}
}

func (g *Gateway) snapshot() []*port {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.ports)
}

// tick does what is due every second: samples for the charts, and the sheet on disk.
func (g *Gateway) tick() {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	failed := false
	for {
		select {
		case <-g.quit:
			return
		case <-t.C:
		}
		g.sample()
		s := g.startSheet("")
		if err := s.save(g.cfg.Log.Dir, false); err != nil != failed { // tell when it begins, and when it ends
			failed = err != nil
			g.slog.Warn("sheet on disk", "error", err)
		}
	}
}

func (g *Gateway) startSheet(end string) StartSheet {
	s := StartSheet{End: end, LogStored: g.log.Position().Stored, Positions: map[string][]ledger.Position{}}
	for _, p := range g.snapshot() {
		if ps := p.lane.positions(); len(ps) > 0 {
			s.Positions[p.lane.cfg.ID] = ps
		}
	}
	if e := g.earlier; e != nil { // sources that are silent, or not configured now, keep their places
		for source, ps := range e.Positions {
			if _, ok := s.Positions[source]; !ok {
				s.Positions[source] = ps
			}
		}
	}
	s.Sheet = g.Sheet()
	return s
}

// Sheet draws up the balance sheet of this moment.
func (g *Gateway) Sheet() ledger.Sheet {
	ports := g.snapshot()
	accounts := make([]ledger.Port, len(ports))
	for i, p := range ports {
		accounts[i] = p.lane.sheet()
	}
	return ledger.NewSheet(time.Now().UnixNano(), g.since, accounts)
}

// Reload starts, stops and changes sources as the new configuration has them. Sources that stay the same are not touched,
// nor is the log; a change of log, api or read needs a restart, and is an error that changes nothing.
func (g *Gateway) Reload(cfg Config) error {
	if err := cfg.Check(); err != nil {
		return err
	}
	for name, pair := range map[string][2]any{
		"log": {g.cfg.Log, cfg.Log}, "api": {g.cfg.API, cfg.API}, "read": {g.cfg.Read, cfg.Read},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			return fmt.Errorf("%s has changed: that needs a restart", name)
		}
	}
	var gone []*port
	keep := map[string]bool{}
	for _, p := range g.snapshot() {
		id := p.lane.cfg.ID
		i := slices.IndexFunc(cfg.Sources, func(s SourceConfig) bool { return s.ID == id })
		if i >= 0 && reflect.DeepEqual(cfg.Sources[i], p.lane.cfg) {
			keep[id] = true
		} else {
			gone = append(gone, p)
		}
	}
	for _, p := range gone {
		p.stop()
		g.empty(p, stopPatience)
		g.slog.Info("stopped", "source", p.lane.cfg.ID)
		end := StartSheet{End: "taken out of the configuration, or changed"}
		end.Sheet = ledger.NewSheet(time.Now().UnixNano(), g.since, []ledger.Port{p.lane.sheet()})
		if err := end.archive(g.cfg.Log.Dir); err != nil {
			return err
		}
		g.mu.Lock()
		g.ports = slices.DeleteFunc(g.ports, func(q *port) bool { return q == p })
		g.mu.Unlock()
	}
	g.cfg.Sources = cfg.Sources
	for _, s := range cfg.Sources {
		if keep[s.ID] {
			continue
		}
		if err := g.add(s); err != nil {
			return err
		}
	}
	return nil
}

// stopPatience is how long a stop waits for the log to take what is held.
const stopPatience = 10 * time.Second

// empty waits until the log has taken and stored what a stopped port still holds.
func (g *Gateway) empty(p *port, patience time.Duration) {
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		p.lane.settle(g.commits.get(), time.Now().UnixNano())
		p.lane.mu.Lock()
		held := p.lane.backlog.frames + p.lane.staged.frames
		p.lane.mu.Unlock()
		if held == 0 || g.log.Position().Err != nil || g.log.Position().Full {
			return
		}
		_ = g.log.Sync() // its error shows in Position
	}
}

// Stop ends the recording: it stops the sources, brings what is held into the log, syncs and closes it, and returns
// the last sheet. end says why, for the record.
func (g *Gateway) Stop(end string) (ledger.Sheet, error) {
	ports := g.snapshot()
	var all sync.WaitGroup
	for _, p := range ports {
		all.Go(p.stop)
	}
	all.Wait()
	err := g.reader.Close()
	for _, p := range ports {
		g.empty(p, stopPatience)
	}
	close(g.quit)
	g.done.Wait()
	err = errors.Join(err, g.log.Close())
	if g.cfg.Log.Linked {
		g.slog.Info("the log's linked batches", "outcome", g.chains.Counts())
	}
	lost := causeFailed
	if errors.Is(err, seglog.ErrDiskFull) {
		lost = causeDiskFull
	}
	for _, p := range ports {
		p.lane.settle(g.commits.get(), time.Now().UnixNano())
		p.lane.lose(lost)
	}
	s := g.startSheet(end)
	if errors.Is(err, seglog.ErrFailed) {
		s.End = fmt.Sprintf("%s; %v", end, err)
	}
	err = errors.Join(err, s.save(g.cfg.Log.Dir, true), s.archive(g.cfg.Log.Dir))
	return s.Sheet, err
}
