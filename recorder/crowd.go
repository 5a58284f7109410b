package recorder

import (
	"slices"
	"time"
)

const (
	// maxArrivals is how many connections wait for a seat, at most; the rest waits in the kernel.
	maxArrivals = 64
	// maxOfOne is how many of them one address may have for long, once there are so many: the
	// kernel gives connections in the order in which they came, so those of others would wait
	// behind them.
	maxOfOne = maxArrivals / 2
	// crowdPatience is how long an address may have more. What waits for that long, while the log
	// takes what it gets, is not about to be read, and others wait no longer for it.
	crowdPatience = 30 * time.Second
)

// relieve refuses the newest connections of an address that keeps those of others out: as many as
// may wait do, more than maxOfOne are of that address, and its first has waited for crowdPatience.
// While the log takes nothing all wait for that, and none is refused.
func (h *hub) relieve(now time.Time) {
	if len(h.waiting) < maxArrivals {
		return
	}
	if at := h.r.log.Position(); at.Stalled != nil || at.Err != nil {
		return
	}
	first, kept := map[string]time.Time{}, map[string]int{}
	h.waiting = slices.DeleteFunc(h.waiting, func(a *arrival) bool {
		if kept[a.id]++; kept[a.id] == 1 {
			first[a.id] = a.came
		}
		if kept[a.id] <= maxOfOne || now.Sub(first[a.id]) < crowdPatience {
			return false
		}
		h.refuse(a, refusedCrowd)
		return true
	})
}
