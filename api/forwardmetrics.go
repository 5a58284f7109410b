package api

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallywheel/tallywheel/ledger"
)

var (
	descForwardUp      = desc("forward_up", "Whether the destination takes frames.", "destination")
	descForwardStopped = desc("forward_stopped_sources", "Sources of which nothing is forwarded until somebody acts.",
		"destination")
	descForwardLag = desc("forward_lag_records",
		"Durable records of the log behind the last one up to which everything is acknowledged.", "destination")
	descForwardBytes   = desc("forward_lag_bytes", "Bytes of the log that these take, about.", "destination")
	descForwardSeconds = desc("forward_lag_seconds", "Since when something is not acknowledged; 0: everything is.",
		"destination")
	descForwardAgain = desc("forward_reconnects_total", "Times the destination took frames again.", "destination")
	descForwardGone  = desc("forward_gone_records_total",
		"Records that the log removed before they were forwarded, at most.", "destination")
	descForwardFrames = desc("forward_frames_total",
		"Frames by what became of them: forwarded, acknowledged, and resent of these.", "destination", "source", "kind")
	descForwardRefused = desc("forward_refused_total", "Messages that the destination did not take.", "destination",
		"source")
)

// collectForwards has the books of the destinations.
func collectForwards(
	all []ledger.Forwarding, counter func(*prometheus.Desc, uint64, ...string),
	gauge func(*prometheus.Desc, float64, ...string),
	flag func(*prometheus.Desc, bool, ...string),
) {
	for _, f := range all {
		flag(descForwardUp, f.State == ledger.ForwardOn, f.Name)
		gauge(descForwardLag, float64(f.LagRecords), f.Name)
		gauge(descForwardBytes, float64(f.LagBytes), f.Name)
		behind := 0.0
		if f.UpTo > 0 {
			behind = max(0, time.Since(time.Unix(0, int64(f.UpTo))).Seconds())
		}
		gauge(descForwardSeconds, behind, f.Name)
		counter(descForwardAgain, f.Reconnects, f.Name)
		counter(descForwardGone, f.Gone, f.Name)
		stopped := 0.0
		for _, s := range f.Sources {
			id := s.ID
			if s.Quarantine {
				id += " quarantine"
			}
			counter(descForwardFrames, s.Forwarded, f.Name, id, "forwarded")
			counter(descForwardFrames, s.Acknowledged, f.Name, id, "acknowledged")
			counter(descForwardFrames, s.Resent, f.Name, id, "resent")
			counter(descForwardRefused, s.Refused, f.Name, id)
			if s.State == ledger.ForwardStopped {
				stopped++
			}
		}
		gauge(descForwardStopped, stopped, f.Name)
	}
}
