package load

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tallywheel/tallywheel/serial/serialtest"
)

const (
	// FaultsEach is how many faults of each kind the shortest turn that counts has: 20 and more in
	// the rounds that a verdict needs, each of which has other ones.
	FaultsEach = 3
	// gap is the mean number of frames between two faults: with the five kinds of Disturbed each
	// comes once in 150 frames, ten times as often as the demonstration's.
	gap = 30
	// countsFrom is the length of the shortest turn that counts. A warm-up is shorter, and need not
	// have every fault.
	countsFrom = 150 * time.Millisecond
)

// disturb sends as a device does that makes faults: other ones in each turn, but as many of each
// kind. The turn lasts until they are made, some 0.3 s at least, and a second where the port is
// unplugged.
func (s Serial) disturb(ctx context.Context, line *serialtest.Port, length time.Duration) (did sent, err error) {
	plan, err := serialtest.PlanFor(serialtest.Disturbed, 1, rand.Uint64())
	if err != nil {
		return did, err
	}
	if plan.Gap = gap; !s.Unplugs {
		plan.Unplug = 0
	}
	if plan.Each = FaultsEach; length < countsFrom {
		plan.Each = 0
	}
	d := serialtest.NewDevice(line, plan)
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	err = d.Run(ctx)
	return sent{
		whole: d.Truth.Sent, damaged: d.Truth.Corrupted, dropped: d.Truth.Dropped, repeated: d.Truth.Duplicated,
		unplugged: d.Truth.Outages,
	}, err
}
