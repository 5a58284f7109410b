package gateway

import (
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/internal/hist"
	"github.com/tallywheel/tallywheel/internal/sys"
)

// historySeconds is how far the charts go back.
const historySeconds = 600

// Sample is one second of the recorder, for charts.
type Sample struct {
	At       int64          `json:"at_ms"` // since 1970
	Ports    []PortSample   `json:"ports"`
	Sync     hist.Summary   `json:"sync"`
	Log      LogSample      `json:"log"`
	readings []portReadings // to take differences from
}

// PortSample is one second of a port.
type PortSample struct {
	ID      string       `json:"id"`
	Bytes   float64      `json:"bytes_per_s"`
	Frames  float64      `json:"frames_per_s"`
	Latency hist.Summary `json:"latency"` // from read to stored
}

type portReadings struct {
	id            string
	bytes, frames uint64
}

// LogSample is the log at one moment.
type LogSample struct {
	First     uint64   `json:"first"`
	Stored    uint64   `json:"stored"`
	Durable   uint64   `json:"durable"`
	Bytes     int64    `json:"bytes"`
	DiskFree  int64    `json:"disk_free_bytes"`    // -1 if it is not known
	HoursLeft *float64 `json:"hours_until_full"`   // at the rate of the last minute; null: the disk does not fill
	Full      bool     `json:"full"`               // the disk is full now
	Error     string   `json:"error,omitempty"`    // the log has failed
	Growth    float64  `json:"growth_bytes_per_s"` // of the last minute
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
	h.samples = append(h.samples, s)
	close(h.news)
	h.news = make(chan struct{})
}

// all returns the samples so far, and a channel that is closed with the next one.
func (h *history) all() ([]Sample, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Sample(nil), h.samples...), h.news
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

// sample takes the sample of this second.
func (g *Gateway) sample() {
	before, ok := g.history.last()
	if !ok {
		before.At = g.since / int64(time.Millisecond)
	}
	now := time.Now().UnixMilli()
	seconds := float64(now-before.At) / 1000
	s := Sample{At: now, Sync: g.syncs.Last()}
	g.syncs.Turn()
	for _, p := range g.snapshot() {
		l := p.lane
		l.mu.Lock()
		r := portReadings{l.cfg.ID, l.book.BytesRead(), l.book.Frames().OK}
		l.mu.Unlock()
		l.lat.Turn()
		ps := PortSample{ID: r.id, Latency: l.lat.Last()}
		var b portReadings
		for _, have := range before.readings {
			if have.id == r.id && r.bytes >= have.bytes && r.frames >= have.frames { // else the source was started anew
				b = have
			}
		}
		ps.Bytes, ps.Frames = float64(r.bytes-b.bytes)/seconds, float64(r.frames-b.frames)/seconds
		s.Ports = append(s.Ports, ps)
		s.readings = append(s.readings, r)
	}
	s.Log = g.logSample()
	g.history.add(s)
}

func (g *Gateway) logSample() LogSample {
	p := g.log.Position()
	s := LogSample{First: p.First, Stored: p.Stored, Durable: p.Durable, Bytes: p.Bytes, Full: p.Full, DiskFree: -1}
	if p.Err != nil {
		s.Error = p.Err.Error()
	}
	if free, err := sys.FreeBytes(g.cfg.Log.Dir); err == nil {
		s.DiskFree = free
	}
	samples, _ := g.history.all()
	if n := len(samples); n > 0 {
		then := samples[max(0, n-growthWindow)]
		if seconds := float64(time.Now().UnixMilli()-then.At) / 1000; seconds > 0 && p.Stored > 0 {
			// Segments are of one size from the start, so growth is that of what is in them.
			var bytes float64
			for _, sample := range samples[max(0, n-growthWindow):] {
				for _, port := range sample.Ports {
					bytes += port.Bytes + port.Frames*recordOverhead
				}
			}
			s.Growth = bytes / seconds
		}
	}
	if keep := int64(g.cfg.Log.Keep.Size); s.Growth > 0 && s.DiskFree >= 0 && (keep == 0 || keep-s.Bytes > s.DiskFree) {
		hours := float64(s.DiskFree) / s.Growth / 3600
		s.HoursLeft = &hours
	}
	return s
}

// recordOverhead is what a record takes in the log beside its data, in bytes.
const recordOverhead = 32
