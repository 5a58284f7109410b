package recorder

import (
	"slices"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/internal/hist"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/ledger"
)

// historySeconds is how far the charts go back.
const historySeconds = 600

// Sample is one second of the recorder, for charts.
type Sample struct {
	At       int64                   `json:"at_ms"` // since 1970
	Ports    []PortSample            `json:"ports"`
	Sync     hist.Summary            `json:"sync"`
	Log      LogSample               `json:"log"`
	taken    time.Time               // At by a clock that nobody sets: rates are by this one
	readings map[string]portReadings // to take differences from, by port; only the newest sample has them
}

// PortSample is one second of a port.
type PortSample struct {
	ID      string       `json:"id"`
	Bytes   float64      `json:"bytes_per_s"`
	Frames  float64      `json:"frames_per_s"`
	Latency hist.Summary `json:"latency"` // from read to stored
}

// portReadings is what a port had read when the last sample was taken.
type portReadings struct {
	bytes, frames uint64
}

// LogSample is the log at one moment.
type LogSample struct {
	First    uint64 `json:"first"`
	Stored   uint64 `json:"stored"`
	Durable  uint64 `json:"durable"`
	Bytes    int64  `json:"bytes"`           // what is recorded takes
	Ahead    int64  `json:"ahead_bytes"`     // held on the disk for what is to come
	DiskFree int64  `json:"disk_free_bytes"` // -1 if it is not known
	// what the log may still take of it, ahead and beside its reserve; -1 if it is not known
	Room int64 `json:"room_bytes"`
	// until there is no such room, at the rate of the last minute; null: the disk does not fill
	HoursLeft *float64 `json:"hours_until_full"`
	Full      bool     `json:"full"` // the disk is full now
	// … or was, and the oldest records were removed, though they should be kept
	Evicting bool    `json:"evicting"`
	Evicted  uint64  `json:"evicted"`            // how many were, since the start
	Stalled  string  `json:"stalled,omitempty"`  // why the log waits and tries again
	Error    string  `json:"error,omitempty"`    // the log has failed
	Growth   float64 `json:"growth_bytes_per_s"` // of the last minute
}

// history keeps the samples of the last minutes.
type history struct {
	mu      sync.Mutex
	samples []Sample
	news    chan struct{} // closed when a sample comes
}

func newHistory() *history { return &history{news: make(chan struct{})} }

func (h *history) add(s Sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.samples) == historySeconds {
		h.samples = h.samples[:copy(h.samples, h.samples[1:])]
	}
	if n := len(h.samples); n > 0 {
		h.samples[n-1].readings = nil
	}
	h.samples = append(h.samples, s)
	close(h.news)
	h.news = make(chan struct{})
}

// all returns the samples so far.
func (h *history) all() []Sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.samples)
}

// next is a channel that is closed when a sample comes.
func (h *history) next() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.news
}

func (h *history) last() (Sample, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.samples) == 0 {
		return Sample{}, false
	}
	return h.samples[len(h.samples)-1], true
}

// growthWindow is the time over which the log's growth is measured, in samples.
const growthWindow = 60

// sample takes the sample of this second, of which the ports have these accounts.
func (r *Recorder) sample(accounts []ledger.Port) {
	before, ok := r.history.last()
	if !ok {
		before.taken = r.began
	}
	now := time.Now()
	took := now.Sub(before.taken)
	s := Sample{At: now.UnixMilli(), taken: now, Sync: r.syncs.Last(), Ports: make([]PortSample, 0, len(accounts))}
	r.syncs.Turn()
	lanes := map[string]*port{}
	for _, p := range r.snapshot() {
		lanes[p.lane.cfg.ID] = p
	}
	readings := make(map[string]portReadings, len(accounts))
	for i := range accounts {
		id := accounts[i].ID
		p := lanes[id]
		if p == nil { // it has left just now
			continue
		}
		at := portReadings{accounts[i].Bytes.Read, accounts[i].Frames.OK}
		if p.hub != nil { // what it has is of peers that are gone, and was in their samples
			at = portReadings{}
		}
		b := before.readings[id]
		if at.bytes < b.bytes || at.frames < b.frames { // the source was started anew
			b = portReadings{}
		}
		s.Ports = append(s.Ports, PortSample{
			ID: id, Bytes: perSecond(at.bytes-b.bytes, took), Frames: perSecond(at.frames-b.frames, took),
			Latency: p.lane.turnLatency(),
		})
		readings[id] = at
	}
	s.readings = readings
	s.Log = r.LogNow()
	r.history.add(s)
}

// perSecond is a rate; 0 where no time has passed.
func perSecond(n uint64, took time.Duration) float64 {
	if took <= 0 {
		return 0
	}
	return float64(n) / took.Seconds()
}

// LogNow is the log at this moment.
func (r *Recorder) LogNow() LogSample {
	p := r.position()
	s := LogSample{
		First: p.First, Stored: p.Stored, Durable: p.Durable, Bytes: p.Used, Ahead: p.Ahead, Full: p.Full,
		Evicting: p.Evicting, Evicted: p.Evicted, DiskFree: -1, Room: -1,
	}
	if p.Err != nil {
		s.Error = p.Err.Error()
	}
	if p.Stalled != nil {
		s.Stalled = p.Stalled.Error()
	}
	if free, err := sys.FreeBytes(r.cfg.Log.Dir); err == nil {
		s.DiskFree = free
	}
	if room, err := r.log.Room(); err == nil {
		s.Room = room
	}
	if p.Stored > 0 {
		s.Growth = r.history.growth()
	}
	if keep := int64(r.cfg.Log.Keep.Size); s.Growth > 0 && s.Room >= 0 && (keep == 0 || keep-s.Bytes > s.Room) {
		hours := float64(s.Room) / s.Growth / 3600
		s.HoursLeft = &hours
	}
	return s
}

// growth is how much the log has grown in the last minute, in bytes a second; 0 without a sample.
// Segments are of one size from the start, so it is that of what is in them.
func (h *history) growth() float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.samples[max(0, len(h.samples)-growthWindow):]
	if len(last) == 0 {
		return 0
	}
	seconds := time.Since(last[0].taken).Seconds()
	if seconds <= 0 {
		return 0
	}
	var bytes float64
	for i := range last {
		for _, p := range last[i].Ports {
			bytes += p.Bytes + p.Frames*recordOverhead
		}
	}
	return bytes / seconds
}

// recordOverhead is what a record takes in the log beside its data, in bytes.
const recordOverhead = 32

// tellRoom says at a start that the log has none: a disk may be too small for what is configured.
func (r *Recorder) tellRoom() {
	if room, err := r.log.Room(); err != nil || room > 0 {
		return
	}
	free, _ := sys.FreeBytes(r.cfg.Log.Dir) // it is known, for Room is
	c := r.cfg.Log
	r.slog.Warn("the disk has no room for the log: make room, or set log.segment and log.reserve lower",
		"free", config.Size(free), "segment", c.Segment, "reserve", c.Reserve)
}
