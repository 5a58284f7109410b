package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/probe"
)

// Way is a load of requests, one at a time on each connection, on a server that stamps them. Where
// their time went is followed through the kernel.
type Way struct{ HTTP }

// moments are those of all requests so far, added up: at the stations in the kernel, and at the
// handler between two of them.
type moments struct {
	kernel  []probe.Passed
	handler contestant.Stamped
}

// Scene makes an address for one turn.
func (w Way) Scene(b *lab.Bench) (*lab.Scene, error) {
	scene, err := w.HTTP.Scene(b)
	if err != nil {
		return nil, err
	}
	e, err := follow(scene.Serves)
	if err != nil {
		return nil, errors.Join(err, scene.Close())
	}
	load, closes := scene.Load, scene.Close
	scene.Load = func(ctx context.Context, length time.Duration) (func(lab.Metrics), error) {
		var before, after moments
		var err error
		// Nothing else is on its way. To ask for the stamps is an exchange, too, so it is outside
		// of what is between both looks at the kernel.
		if before.handler, err = askStamps(ctx, scene.Serves); err != nil {
			return nil, err
		}
		if before.kernel, err = stations(e); err != nil {
			return nil, err
		}
		judge, err := load(ctx, length)
		if err != nil {
			return nil, err
		}
		if after.kernel, err = stations(e); err != nil {
			return nil, err
		}
		if after.handler, err = askStamps(ctx, scene.Serves); err != nil {
			return nil, err
		}
		whole := lab.Metrics{}
		judge(whole)
		parts, err := partsOf(before, after, uint64(whole["ops"]), whole["latency_us_mean"])
		if err != nil {
			return nil, err
		}
		return func(m lab.Metrics) {
			judge(m)
			maps.Copy(m, parts)
		}, nil
	}
	scene.Close = func() error { return errors.Join(closes(), e.Close()) }
	return scene, nil
}

func follow(addr string) (*probe.Exchanges, error) {
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, err
	}
	return probe.FollowExchanges(port)
}

func stations(e *probe.Exchanges) ([]probe.Passed, error) {
	all, err := e.Read()
	return all[:], err
}

// askStamps asks a server for its stamps, on a connection for this alone.
func askStamps(ctx context.Context, addr string) (s contestant.Stamped, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+contestant.StampsPath, nil)
	if err != nil {
		return s, err
	}
	r.Close = true
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return s, err
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		return s, err
	}
	return contestant.ReadStamps(string(text))
}

// partsOf splits the latency of so many requests, mean in µs. Were they not all seen at each
// station, once, there is no result.
func partsOf(before, after moments, requests uint64, mean float64) (lab.Metrics, error) {
	if n := after.handler.Count - before.handler.Count; n != requests {
		return nil, fmt.Errorf("the handler has stamped %d requests of %d", n, requests)
	}
	sums := make([]uint64, len(after.kernel), len(after.kernel)+2) // of the moments
	for i := range after.kernel {
		if n := after.kernel[i].Count - before.kernel[i].Count; n != requests {
			return nil, fmt.Errorf("the kernel has seen %d requests of %d at station %d", n, requests, i)
		}
		sums[i] = after.kernel[i].SumNs - before.kernel[i].SumNs
	}
	began, ended := probe.Station(len(sums)), probe.Station(len(sums)+1) // the handler
	sums = append(sums, after.handler.BeganNs-before.handler.BeganNs, after.handler.EndedNs-before.handler.EndedNs)
	between := func(from, to probe.Station) float64 {
		return float64(int64(sums[to]-sums[from])) / float64(requests) / 1e3
	}
	seen := between(probe.RequestSent, probe.AnswerRead)
	return lab.Metrics{
		lab.WayRest.String():    mean - seen,
		lab.WayRequest.String(): between(probe.RequestSent, probe.RequestArrived),
		lab.WayQueue.String():   between(probe.RequestArrived, probe.RequestRead),
		lab.WayRead.String():    between(probe.RequestRead, began),
		lab.WayHandler.String(): between(began, ended),
		lab.WayWrite.String():   between(ended, probe.AnswerSent),
		lab.WayAnswer.String():  between(probe.AnswerSent, probe.AnswerArrived),
		lab.WayClient.String():  between(probe.AnswerArrived, probe.AnswerRead),
		lab.WayShare.String():   100 * seen / mean,
	}, nil
}
