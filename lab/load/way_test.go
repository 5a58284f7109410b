package load

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/probe"
)

// at are moments of so many requests, whose stations are so far from the first one.
func at(requests, handler uint64, began, ended uint64, after ...uint64) (m moments) {
	for _, ns := range after {
		m.kernel = append(m.kernel, probe.Passed{Count: requests, SumNs: ns * requests})
	}
	m.handler = contestant.Stamped{Count: handler, BeganNs: began * requests, EndedNs: ended * requests}
	return m
}

// TestPartsOfAWay: the parts are the times between the stations, whatever the sums were before, and
// add up to the mean.
func TestPartsOfAWay(t *testing.T) {
	const huge = 1<<64 - 5000 // the sums go round
	before, after := at(1, 1, huge, huge, huge, huge, huge, huge, huge, huge), at(1, 1, 0, 0, 0, 0, 0, 0, 0, 0)
	for i, ns := range []uint64{0, 1000, 3000, 15000, 21000, 28000} {
		after.kernel[i] = probe.Passed{Count: 11, SumNs: before.kernel[i].SumNs + 10*ns}
	}
	after.handler = contestant.Stamped{
		Count: 11, BeganNs: before.handler.BeganNs + 10*6000, EndedNs: before.handler.EndedNs + 10*11000,
	}
	m, err := partsOf(before, after, 10, 30)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for metric, want := range map[lab.Metric]float64{
		lab.WayRest: 2, lab.WayRequest: 1, lab.WayQueue: 2, lab.WayRead: 3, lab.WayHandler: 5, lab.WayWrite: 4,
		lab.WayAnswer: 6, lab.WayClient: 7,
	} {
		if got := m[metric.String()]; got != want {
			t.Errorf("%s: %v, want %v", metric, got, want)
		}
		sum += m[metric.String()]
	}
	if share := m[lab.WayShare.String()]; sum != 30 || share < 93.3 || share > 93.4 {
		t.Errorf("the parts are %v, the share %v: want 30 and 93.33", sum, share)
	}
}

// TestPartsOfOthers: where a station saw more or fewer requests than the load made, there is no
// result.
func TestPartsOfOthers(t *testing.T) {
	none := at(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	after := at(10, 10, 0, 0, 0, 0, 0, 0, 0, 0)
	if _, err := partsOf(none, after, 10, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := partsOf(none, at(10, 9, 0, 0, 0, 0, 0, 0, 0, 0), 10, 1); err == nil ||
		!strings.Contains(err.Error(), "stamped 9 requests of 10") {
		t.Errorf("a request that was not stamped: %v", err)
	}
	after.kernel[probe.AnswerSent].Count = 11
	if _, err := partsOf(none, after, 10, 1); err == nil ||
		!strings.Contains(err.Error(), "11 requests of 10 at station 3") {
		t.Errorf("an answer too many: %v", err)
	}
}

// TestWay: a load on a server that stamps its requests has parts that add up to its latency.
func TestWay(t *testing.T) {
	scene, err := Way{HTTP: HTTP{Connections: 2}}.Scene(nil)
	if err != nil {
		t.Skipf("SKIPPED: %v; run as root, outside of a container, on a kernel with BTF", err)
	}
	defer scene.Close()
	ln, err := net.Listen("tcp", scene.Serves)
	if err != nil {
		t.Fatal(err)
	}
	var stamps contestant.Stamps
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == contestant.StampsPath {
			_, _ = w.Write(stamps.Text())
			return
		}
		now := time.Duration(time.Now().UnixNano()) // another clock: its difference is what is asked for
		stamps.Add(now, now+time.Millisecond)
	})}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ln) }()
	defer func() {
		_ = s.Close()
		<-ended
	}()
	for range 2 { // the second time the sums have begun
		judge, err := scene.Load(context.Background(), 100*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		m := lab.Metrics{}
		judge(m)
		if m[lab.WayHandler.String()] != 1000 || m["ops"] == 0 || m[lab.WayShare.String()] <= 0 {
			t.Errorf("%v: want a handler of 1000 µs", m)
		}
	}
}
