package probe

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

const (
	exchanges = Kind("exchanges of a port")
	entered   = Kind("exchanges of a port, by calls") // for kernels without a tracepoint of sends
)

// Station is a point on the way of a request and its answer, between a client and a server on this
// machine.
type Station int

// The stations, in their order.
const (
	RequestSent    Station = iota // the client's call that sends it begins
	RequestArrived                // the server's socket has it
	RequestRead                   // the server's read has it
	AnswerSent                    // the server's call that sends it begins
	AnswerArrived                 // the client's socket has it
	AnswerRead                    // the client's read has it

	stationCount
)

// Passed is what has passed a station.
type Passed struct {
	Count uint64
	// the moments at which they did, added up modulo 2^64: of CLOCK_MONOTONIC, in ns. Of two
	// stations that the same have passed, the difference of their sums is the time between them.
	SumNs uint64
}

// Exchanges follows requests and answers: see [FollowExchanges]. Its methods may be called from
// several goroutines at once.
type Exchanges struct {
	stations *ebpf.Map
	links    []link.Link
	gate     gate
}

// FollowExchanges begins to follow the exchanges of all connections whose server has a TCP port on
// this machine, and whose client is on it, too. A connection has one exchange at a time: where the
// next request is sent before the answer to the last one is read, the counts of the stations are
// no longer those of the exchanges. Of what is sent, comes or is read in pieces the first counts.
// Each exchange costs some two microseconds. It needs Linux 6.3. Close must be called.
func FollowExchanges(port int) (*Exchanges, error) {
	if port < 1 || port > 65535 {
		return nil, fmt.Errorf("probe: %w: port %d: want 1 to 65535", ErrOptions, port)
	}
	variables := map[string]any{"only_port": uint16(port)}
	c, links, err := load(exchanges, variables)
	if err != nil {
		var err2 error
		if c, links, err2 = load(entered, variables); err2 != nil {
			return nil, errors.Join(err, err2)
		}
	}
	defer c.Close() // links and maps keep what they need
	return &Exchanges{links: links, stations: c.DetachMap("stations")}, nil
}

// Read returns what has passed each [Station] so far; [os.ErrClosed], wrapped, after Close.
func (e *Exchanges) Read() (all [stationCount]Passed, err error) {
	leave, err := e.gate.enter()
	if err != nil {
		return all, err
	}
	defer leave()
	if e.stations == nil {
		return all, errors.New("probe: read: it was not started: see FollowExchanges")
	}
	sums, err := sum(e.stations, 2*int(stationCount))
	if err != nil {
		return all, err
	}
	for i := range all {
		all[i] = Passed{Count: sums[i], SumNs: sums[int(stationCount)+i]}
	}
	return all, nil
}

// Close takes the programs out of the kernel.
func (e *Exchanges) Close() error {
	return e.gate.shut(func() error { return errors.Join(closeAll(e.links), e.stations.Close()) })
}
