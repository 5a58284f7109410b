package cell

import (
	"iter"
	"math"
	"time"

	"github.com/tallywheel/tallywheel/internal/hist"
	"github.com/tallywheel/tallywheel/ring"
)

// The page, in words of 64 bits. The cell's thread writes all but atStop, each by one store, and
// adds without a lock: nobody else does. Others only load. Words of one moment may be of two
// periods. Times are in ns.
const (
	atStop       = 8 * iota // written by the parent: 1 to end
	atBegan                 // CLOCK_MONOTONIC when the step that is under way began; 0: none is
	atCycles                // steps that were begun
	atMissed                // releases that were left out
	atLast                  // wake-up latency of the last one
	atLeast                 // … shortest
	atMost                  // … longest
	atSum                   // … of all
	atGaps                  // times from one wake-up to the next that were compared to the period
	atGapSum                // what they were longer, as a float64
	atGapSquares            // … squares, as a float64
	atStep                  // longest step
	atYield                 // longest wait for Go's scheduler
	atMinor                 // page faults behind the set-up
	atMajor                 // … that waited for a disk
	atSwitches              // involuntary switches behind the set-up
	atAllocs                // allocations behind the set-up
	atAllocBytes            // … bytes
	atMoves                 // times that another thread has become the one that keeps time
	atThread                // the thread that keeps time

	// A cell of the histogram for each word from here on.
	atCounts = 512
	longest  = 1<<36 - 1 // ns, 68 s; what is longer counts as that
)

// pageSize is the size of the memory: 16 KiB.
var pageSize = atCounts + 8*(hist.Cell(longest)+1)

// Account counts how a periodic task keeps time. One goroutine counts; any process that maps the
// memory may look at it meanwhile.
type Account struct {
	mem    []byte
	period time.Duration
	last   time.Duration // wake-up before
}

// NewAccount is an empty account of this process alone.
func NewAccount(period time.Duration) *Account {
	return &Account{mem: make([]byte, pageSize), period: period}
}

func (a *Account) load(at int) uint64     { return ring.Uint64(a.mem, at).Load() }
func (a *Account) store(at int, v uint64) { ring.Uint64(a.mem, at).Store(v) }
func (a *Account) add(at int, n uint64)   { a.store(at, a.load(at)+n) }

// addFloat adds to a word that is a float64.
func (a *Account) addFloat(at int, f float64) {
	a.store(at, math.Float64bits(math.Float64frombits(a.load(at))+f))
}

// Woke counts a wake-up: for which release it was, and when it came.
func (a *Account) Woke(release, woke time.Duration) {
	late := uint64(min(max(woke-release, 0), longest))
	a.store(atLast, late)
	if n := a.load(atCycles); n == 0 || late < a.load(atLeast) {
		a.store(atLeast, late)
	}
	a.store(atMost, max(late, a.load(atMost)))
	a.add(atSum, late)
	a.add(atCounts+8*hist.Cell(int64(late)), 1)
	if a.last != 0 {
		longer := float64(woke - a.last - a.period)
		a.add(atGaps, 1)
		a.addFloat(atGapSum, longer)
		a.addFloat(atGapSquares, longer*longer)
	}
	a.last = woke
	a.add(atCycles, 1)
}

// Missed counts releases that were left out.
func (a *Account) Missed(n uint64) { a.add(atMissed, n) }

// Next is the release behind one, of which the step ended at a moment: those before that moment are
// counted as missed.
func (a *Account) Next(release, ended time.Duration) (next time.Duration, missed uint64) {
	next = release + a.period
	if ended >= next {
		missed = uint64((ended-next)/a.period) + 1
		a.Missed(missed)
		next += time.Duration(missed) * a.period
	}
	return next, missed
}

// Stats is what an account says.
type Stats struct {
	Cycles  uint64  // steps that were begun
	Missed  uint64  // releases that were left out, because a wake-up or a step was too late
	Latency Latency // from each release to the wake-up for it

	PeriodStddev time.Duration // standard deviation of the time from one wake-up to the next
	LongestStep  time.Duration // of a cell: the longest step
	LongestYield time.Duration // of a cell: the longest time that Go's scheduler took to go on with it
	Moves        uint64        // of a cell: times that Go's scheduler put it on another thread

	// Of the thread of a cell, from the end of its set-up; looked at once a second, and at the end.
	MinorFaults, MajorFaults uint64
	Involuntary              uint64 // involuntary context switches

	// Of the process of a cell, from the end of its set-up. Exact at its end; before, small ones
	// show once there are 8 KiB of a size.
	Allocs, AllocBytes uint64
}

// Stats reads the account.
func (a *Account) Stats() Stats {
	d := func(at int) time.Duration { return time.Duration(min(a.load(at), math.MaxInt64)) }
	s := Stats{
		Cycles: a.load(atCycles), Missed: a.load(atMissed),
		LongestStep: d(atStep), LongestYield: d(atYield),
		MinorFaults: a.load(atMinor), MajorFaults: a.load(atMajor), Involuntary: a.load(atSwitches),
		Allocs: a.load(atAllocs), AllocBytes: a.load(atAllocBytes), Moves: a.load(atMoves),
	}
	if n := float64(a.load(atGaps)); n > 1 {
		sum, squares := math.Float64frombits(a.load(atGapSum)), math.Float64frombits(a.load(atGapSquares))
		s.PeriodStddev = time.Duration(math.Sqrt(max(0, (squares-sum*sum/n)/(n-1))))
	}
	l := Latency{Last: d(atLast), Min: d(atLeast), Max: d(atMost)}
	for at := atCounts; at < len(a.mem); at += 8 {
		n := a.load(at)
		l.counts = append(l.counts, n)
		l.Count += n
	}
	if l.Count > 0 {
		l.Mean = time.Duration(a.load(atSum) / l.Count)
	}
	s.Latency = l
	return s
}

// Latency is a histogram of wake-up latencies up to 68 s. Cells are 1 ns wide up to 64 ns and then
// a 64th of a power of two: a quantile is at most 0.8 % from the truth.
type Latency struct {
	Count          uint64
	Last           time.Duration // the newest
	Min, Mean, Max time.Duration // exact

	counts []uint64
}

// Quantile is the latency that a share of all, 0 to 1, does not exceed; 0 if there is none.
func (l Latency) Quantile(share float64) time.Duration {
	rank := uint64(math.Ceil(share * float64(l.Count)))
	for i, n := range l.counts {
		if n >= rank && n > 0 {
			return min(max(time.Duration(hist.Middle(i)), l.Min), l.Max)
		}
		rank -= min(n, rank)
	}
	return l.Max
}

// Cells lists the cells that are not empty: the latency in the middle of each, and how many there
// were.
func (l Latency) Cells() iter.Seq2[time.Duration, uint64] {
	return func(yield func(time.Duration, uint64) bool) {
		for i, n := range l.counts {
			if n > 0 && !yield(time.Duration(hist.Middle(i)), n) {
				return
			}
		}
	}
}
