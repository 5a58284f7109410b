package load

import (
	"maps"
	"testing"

	"github.com/tallywheel/tallywheel/lab"
)

func TestParseWrk(t *testing.T) {
	const good = `Running 1s test @ http://127.0.0.1:9000/
  12 threads and 400 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     4.64ms    1.30ms  16.17ms   72.91%
    Req/Sec     7.12k     1.43k   17.45k    88.28%
  Latency Distribution
     50%  610.00us
     75%    5.37ms
     90%    6.16ms
     99%    1.01s
  90779 requests in 1.10m, 9.96MB read
`
	want := lab.Metrics{
		"ops": 90779, "wall_s": 66, "latency_us_mean": 4640, "latency_us_p50": 610,
		"latency_us_p90": 6160, "latency_us_p99": 1_010_000,
	}
	if m, err := parseWrk(good); err != nil || !maps.Equal(m, want) {
		t.Errorf("%v, %v; want %v", m, err, want)
	}
	for _, bad := range []string{
		"", good + "  Non-2xx or 3xx responses: 7\n",
		good + "  Socket errors: connect 0, read 3, write 0, timeout 0\n", "  x requests in 1s, 0B read\n",
	} {
		if m, err := parseWrk(bad); err == nil {
			t.Errorf("%.60q gives %v", bad, m)
		}
	}
}
