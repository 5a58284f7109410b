package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// TestAStopForwardsTheRest: a batch fills for a minute, and the recorder is stopped before. The
// metrics say what is behind; the stop brings it away, or says that it did not.
func TestAStopForwardsTheRest(t *testing.T) {
	at := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	r := startRecorder(t, t.TempDir(), fmt.Sprintf(`  - {id: meter, udp: {listen: %q}, frame: line}
forward: [{to: nats, name: plant, listen: "127.0.0.1:0", batch: {delay: 1m}}]
`, at))
	testenv.Until(t, time.Minute, "the destination takes frames",
		func() bool { return r.sheet(t).Forward[0].State == "forwarding" })
	c, err := net.Dial("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const frames = 10
	for n := range frames {
		fmt.Fprintf(c, "value %d\n", n)
	}
	testenv.Until(t, time.Minute, "the frames are durable",
		func() bool { return r.sheet(t).Ports[0].Frames.Durable == frames })
	a, err := http.Get(r.url + "metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`tallywheel_forward_up{destination="plant"} 1`, `tallywheel_forward_lag_records{destination="plant"} 10`,
		`tallywheel_forward_gone_records_total{destination="plant"} 0`,
		`tallywheel_forward_stopped_sources{destination="plant"} 0`,
	} {
		if !strings.Contains(string(text), want+"\n") {
			t.Errorf("the metrics do not say %s", want)
		}
	}
	f := r.stop(t).Forward[0]
	told := strings.Contains(r.Err.String(), "not all of the log is forwarded")
	if f.LagRecords == 0 && (told || f.Through != frames || f.Sources[0].Acknowledged != frames) ||
		f.LagRecords > 0 && !told {
		t.Errorf("told of a rest: %v; the books say %+v", told, f)
	}
}
