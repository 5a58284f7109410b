package api

import (
	"cmp"
	"maps"
	"net/http"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tallywheel/tallywheel/internal/hist"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/recorder"
)

// metrics serves the books, the log and the server in the form of Prometheus.
func metrics(rec *recorder.Recorder, more ...prometheus.Collector) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(append(more, &exporter{rec}, buildInfo(), ofGo(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))...)
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes})
}

// ofGo says what Go needs. Its older figures of memory, go_memstats_*, are left out: to OpenMetrics
// the gauge go_memstats_alloc_bytes and the counter go_memstats_alloc_bytes_total are one family of
// two kinds, and a strict reader refuses them all.
func ofGo() prometheus.Collector {
	memory := collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(`^/(memory/classes/total|memory/classes/heap/objects|gc/heap/goal):bytes$`)}
	return collectors.NewGoCollector(
		collectors.WithGoCollectorMemStatsMetricsDisabled(), collectors.WithGoCollectorRuntimeMetrics(memory))
}

// maxScrapes is how many answers with metrics are made at a time; who comes beside them gets a 503.
const maxScrapes = 8

// buildInfo is 1, and says by its labels what runs here.
func buildInfo() prometheus.Collector {
	labels := prometheus.Labels{"version": "unknown", "revision": "unknown", "goversion": runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		labels["version"] = info.Main.Version
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				labels["revision"] = s.Value
			}
		}
	}
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tallywheel_build_info", Help: "1, with what runs here as labels.", ConstLabels: labels,
	}, func() float64 { return 1 })
}

// exporter reads everything at the moment it is asked; nothing is counted twice.
type exporter struct{ rec *recorder.Recorder }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("tallywheel_"+name, help, labels, nil)
}

var (
	descBytes = desc("bytes_total", "Bytes by what became of them: read, framed, resync, and quarantined of these.",
		"source", "kind")
	descPartial = desc("partial_bytes", "Bytes held and not classified yet.", "source")
	descFrames  = desc("frames_total",
		"Frames by what they are: ok, corrupt, unique, duplicate, reordered, late, stored, durable.", "source", "kind")
	descMissing = desc("missing_frames",
		"Frame numbers not seen, by how that shows: damaged bytes came instead, none came, or none in time; a late frame takes one back.", "source", "how")
	descDropped  = desc("dropped_frames_total", "Valid frames given up, by cause.", "source", "cause")
	descRequests = desc("requests_total",
		"Requests to which an answer was due, and those that it came to, by kind: asked, answered.", "source", "kind")
	descNoAnswer = desc("unanswered_requests", "Requests to which no answer came; one that comes late takes one back.",
		"source")
	descSilent   = desc("source_silent", "Whether the source has sent nothing for longer than it may.", "source")
	descInFlight = desc("in_flight_frames", "Valid frames held and not stored yet.", "source")
	descSpilled  = desc("spilled_bytes", "Bytes of the frames in flight that have run over into a file.", "source")
	descLine     = desc("line_errors_total", "Errors that the driver counted, by kind.", "source", "kind")
	descUnread   = desc("unread_bytes_total",
		"Bytes that the kernel had taken and that were thrown away unread, by cause.", "source", "cause")
	descRefused = desc("refused_connections_total", "Connections that were ended unread, by cause.", "source", "cause")
	descOutages = desc("outages_total", "Times the source could not be read.", "source")
	descUp      = desc("source_up", "Whether the source is open.", "source")
	descLatency = desc("store_latency_seconds", "Time from read to stored.", "source")
	descSteps   = desc("clock_steps_total", "Times the clock was set while it was watched.")
	descSynced  = desc("clock_synchronised", "Whether a time service keeps the clock.")
	descUnnamed = desc("streams_unknown",
		"Streams of the oldest and the newest records of earlier starts that have no name.")
	descLevel = desc("verdict_level", "The verdict: 0 good, 1 watch, 2 bad.")
	descLost  = desc("lost", "What is lost, by unit and by where: on the wire, or here, in this machine.", "where",
		"unit")
	descReason = desc("reason",
		"How many sources each rule of the verdict holds for; 1 of one that is about no source.", "reason", "level")
	descLosses = desc("losses_total",
		"What was lost or came damaged since the start; what comes late takes nothing back.", "source", "where", "unit")
	descLastEnd = desc("last_end",
		"1 for how the start before this one has ended: stopped, log_failed, or unknown where it left no end.", "end")
	descRestarts = desc("process_restarts_total",
		"Times a process of the recorder was started again behind a crash, by its role: keeper, reader, recorder.",
		"role")
	descDamaged  = desc("damaged", "What arrived damaged, by unit.", "unit")
	descUnknown  = desc("absence_unknown", "Whether a frame of the source may be lost without a trace.", "source")
	descNotified = desc("notified_total",
		"Events of troubles by who was told, and what became of them: sent, failed, dropped.", "by", "outcome")
	descBalanced = desc("balanced", "Whether every equation of every sheet holds.")
	descSync     = desc("log_sync_seconds", "Time of a commit with its sync.")
	descLog      = desc("log_sequence", "Last record of the log: stored, durable, and the first one kept.", "position")
	descLogBytes = desc("log_bytes", "Bytes that what is recorded takes in the log.")
	descAhead    = desc("log_ahead_bytes", "Bytes of the disk that the log holds for what is to come.")
	descRoom     = desc("log_room_bytes",
		"Bytes that the log may still take: ahead, and of the disk but for its reserve.")
	descFree     = desc("disk_free_bytes", "Space left on the disk of the log.")
	descFull     = desc("disk_full", "Whether the log waits for space.")
	descEvicting = desc("log_dropping_oldest",
		"Whether the disk is full and the oldest records make room, though they should be kept.")
	descEvicted = desc("log_evicted_records_total",
		"Records that were removed for want of room, though they should be kept.")
	descStalled = desc("log_stalled",
		"Whether the log cannot write for now, for another reason than a full disk, and tries again.")
	descFailed  = desc("log_failed", "Whether the log has failed.")
	descPlaces  = desc("log_damaged_places", "Places of the log that are damaged, and not repaired.")
	descHurt    = desc("log_damaged_records", "Records that are stored and cannot be read, at most.")
	descChecked = desc("log_checked_bytes_total", "Bytes of what is stored that were read and checked.")
	descWhole   = desc("log_checked_timestamp_seconds",
		"When all that is stored had been read and checked last; 0: not since the start.")
	descChains = desc("log_chains_total",
		"Batches written as chains of linked operations: written, whole, taken up again.", "kind")
	descChainErr  = desc("log_chain_errors_total", "Chains that failed, by the number of the error.", "errno")
	descChainPart = desc("log_chain_failed_parts_total",
		"Chains that failed, by the number of the error and the index of the part that failed.", "errno", "index")
)

// Describe implements prometheus.Collector: the set depends on the sources.
func (*exporter) Describe(c chan<- *prometheus.Desc) { c <- descBalanced }

// Collect implements prometheus.Collector.
func (e *exporter) Collect(c chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	flag := func(d *prometheus.Desc, on bool, labels ...string) {
		v := 0.0
		if on {
			v = 1
		}
		gauge(d, v, labels...)
	}
	histogram := func(d *prometheus.Desc, h *hist.Histogram, labels ...string) {
		n, sum, buckets := h.Cumulative()
		c <- prometheus.MustNewConstHistogram(d, n, sum, buckets, labels...)
	}
	sheet := e.rec.Sheet()
	collectVerdict(&sheet, gauge, flag)
	collectForwards(sheet.Forward, counter, gauge, flag)
	e.collectLosses(&sheet, counter)
	e.collectStarts(flag, counter)
	collectClock(sheet.Clock, counter, flag)
	for _, p := range sheet.Ports {
		collectPort(&p, counter, gauge, flag)
	}
	for source, h := range e.rec.Latencies() {
		histogram(descLatency, h, source)
	}
	histogram(descSync, e.rec.Syncs())
	e.collectNotified(counter)
	e.collectChains(counter)
	e.collectLog(sheet.LogDamage, counter, gauge, flag)
}

func collectPort(
	p *ledger.Port, counter func(*prometheus.Desc, uint64, ...string),
	gauge func(*prometheus.Desc, float64, ...string),
	flag func(*prometheus.Desc, bool, ...string),
) {
	for kind, n := range map[string]uint64{
		"read": p.Bytes.Read, "framed": p.Bytes.Framed, "resync": p.Bytes.Resync,
		"quarantined": p.Bytes.Quarantined,
	} {
		counter(descBytes, n, p.ID, kind)
	}
	gauge(descPartial, float64(p.Bytes.Partial), p.ID)
	f := p.Frames
	for kind, n := range map[string]uint64{
		"ok": f.OK, "corrupt": f.Corrupt, "unique": f.Unique, "duplicate": f.Duplicate, "reordered": f.Reordered,
		"late": f.Late, "stored": f.Stored, "durable": f.Durable,
	} {
		counter(descFrames, n, p.ID, kind)
	}
	for how, n := range map[string]uint64{
		"corrupt": f.MissingCorrupt, "unseen": f.MissingUnseen,
		"by_time": f.MissingByTime,
	} {
		gauge(descMissing, float64(n), p.ID, how)
	}
	counter(descRequests, f.Requests, p.ID, "asked")
	counter(descRequests, f.Answered, p.ID, "answered")
	gauge(descNoAnswer, float64(f.Unanswered), p.ID)
	flag(descSilent, p.SilentSince != 0, p.ID)
	gauge(descInFlight, float64(f.InFlight), p.ID)
	gauge(descSpilled, float64(p.Spilled), p.ID)
	for cause, n := range f.Dropped {
		counter(descDropped, n, p.ID, cause)
	}
	for cause, n := range p.Unread {
		counter(descUnread, n, p.ID, cause)
	}
	for cause, n := range p.Refused {
		counter(descRefused, n, p.ID, cause)
	}
	counter(descOutages, p.OutageCount, p.ID)
	flag(descUnknown, p.Proof != ledger.ProofNumbers, p.ID)
	flag(descUp, p.State == ledger.StateOpen || p.State == ledger.StateBlocked, p.ID)
	collectKernel(p, counter)
}

func (e *exporter) collectLog(
	damage *ledger.LogDamage, counter func(*prometheus.Desc, uint64, ...string),
	gauge func(*prometheus.Desc, float64, ...string),
	flag func(*prometheus.Desc, bool, ...string),
) {
	l := e.rec.LogNow()
	gauge(descLog, float64(l.First), "first")
	gauge(descLog, float64(l.Stored), "stored")
	gauge(descLog, float64(l.Durable), "durable")
	gauge(descLogBytes, float64(l.Bytes))
	gauge(descAhead, float64(l.Ahead))
	if l.Room >= 0 {
		gauge(descRoom, float64(l.Room))
	}
	gauge(descFree, float64(l.DiskFree))
	flag(descFull, l.Full)
	flag(descEvicting, l.Evicting)
	counter(descEvicted, l.Evicted)
	flag(descStalled, l.Stalled != "" && !l.Full)
	flag(descFailed, l.Error != "")
	read, whole := e.rec.Checked()
	counter(descChecked, read)
	gauge(descWhole, float64(max(0, whole.Unix())))
	damage = cmp.Or(damage, &ledger.LogDamage{})
	gauge(descPlaces, float64(damage.Places))
	gauge(descHurt, float64(damage.Records))
}

func collectVerdict(s *ledger.Sheet, gauge func(*prometheus.Desc, float64, ...string),
	flag func(*prometheus.Desc, bool, ...string),
) {
	v := s.Verdict
	flag(descBalanced, s.Balanced)
	gauge(descUnnamed, float64(len(s.StreamsUnknown)))
	gauge(descLevel, float64(v.Level.Rank()))
	holds := map[string]map[string]bool{} // the sources of each kind: one may have several causes
	for _, r := range v.Reasons {
		if holds[r.Kind] == nil {
			holds[r.Kind] = map[string]bool{}
		}
		holds[r.Kind][r.Source] = true
	}
	for _, r := range ledger.Rules() {
		gauge(descReason, float64(len(holds[r.Kind])), r.Kind, string(r.Level))
	}
	for unit, of := range map[string]func(ledger.Amount) uint64{
		"frames":    func(a ledger.Amount) uint64 { return a.Frames },
		"bytes":     func(a ledger.Amount) uint64 { return a.Bytes },
		"datagrams": func(a ledger.Amount) uint64 { return a.Datagrams },
		"records":   func(a ledger.Amount) uint64 { return a.Records },
	} {
		gauge(descLost, float64(of(v.LostWire)), "wire", unit)
		gauge(descLost, float64(of(v.LostHere)), "here", unit)
		gauge(descDamaged, float64(of(v.Damaged)), unit)
	}
}

// lossUnits is in what a source may lose something. A counter that is there before it first counts
// lets nobody miss that.
var lossUnits = []recorder.Grown{
	{Where: ledger.WhereWire, Unit: "frame"},
	{Where: ledger.WhereHere, Unit: "frame"},
	{Where: ledger.WhereHere, Unit: "byte"},
	{Where: ledger.WhereHere, Unit: "datagram"},
	{Where: ledger.WhereDamaged, Unit: "frame"},
	{Where: ledger.WhereDamaged, Unit: "byte"},
}

func collectClock(c *ledger.Clock, counter func(*prometheus.Desc, uint64, ...string),
	flag func(*prometheus.Desc, bool, ...string),
) {
	counter(descSteps, c.StepCount)
	if on := c.Synchronised; on != nil {
		flag(descSynced, *on)
	}
}

func (e *exporter) collectLosses(s *ledger.Sheet, counter func(*prometheus.Desc, uint64, ...string)) {
	all := map[recorder.Grown]uint64{{Where: ledger.WhereHere, Unit: "record"}: 0}
	for i := range s.Ports {
		for _, g := range lossUnits {
			g.Source = s.Ports[i].ID
			all[g] = 0
		}
	}
	maps.Copy(all, e.rec.Grown())
	for g, n := range all {
		counter(descLosses, n, g.Source, g.Where, g.Unit+"s")
	}
}

func (e *exporter) collectStarts(flag func(*prometheus.Desc, bool, ...string),
	counter func(*prometheus.Desc, uint64, ...string),
) {
	for _, p := range e.rec.Processes() {
		counter(descRestarts, uint64(p.Restarts), string(p.Role))
	}
	for _, end := range []recorder.LastEnd{recorder.EndStopped, recorder.EndFailed, recorder.EndUnknown} {
		flag(descLastEnd, e.rec.LastEnd() == end, string(end))
	}
}

func (e *exporter) collectNotified(counter func(*prometheus.Desc, uint64, ...string)) {
	for who, n := range e.rec.Notified() {
		counter(descNotified, n.Sent, who, "sent")
		counter(descNotified, n.Failed, who, "failed")
		counter(descNotified, n.Dropped, who, "dropped")
	}
}

func collectKernel(p *ledger.Port, counter func(*prometheus.Desc, uint64, ...string)) {
	k := p.Kernel
	if k == nil {
		return
	}
	for kind, n := range map[string]*uint64{
		"overrun": k.Overrun, "buffer_overrun": k.BufferOverrun, "framing": k.Framing, "parity": k.Parity,
		"break": k.Break,
	} {
		if n != nil {
			counter(descLine, *n, p.ID, kind)
		}
	}
}

func (e *exporter) collectChains(counter func(*prometheus.Desc, uint64, ...string)) {
	c, ok := e.rec.Chains()
	if !ok {
		return
	}
	counter(descChains, c.Chains, "written")
	counter(descChains, c.Whole, "whole")
	counter(descChains, c.Breaks, "taken up again")
	for e, n := range c.Errors {
		counter(descChainErr, n, strconv.Itoa(int(e)))
	}
	for f, n := range c.Failed {
		index := strconv.Itoa(f.Index)
		if f.Index < 0 { // beyond those that are told apart
			index = "others"
		}
		counter(descChainPart, n, strconv.Itoa(int(f.Kind)), index)
	}
}
