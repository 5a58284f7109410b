package load

import (
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

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

// TestWrkWarms: before the time that counts wrk is not called, whose shortest time is a second: the
// turns of five servers would not have time for eight rounds.
func TestWrkWarms(t *testing.T) {
	dir := t.TempDir()
	called := filepath.Join(dir, "called")
	text := "#!/bin/sh\necho >>" + called + "\necho '  9 requests in 1.00s, 1MB read'\n"
	if err := os.WriteFile(filepath.Join(dir, "wrk"), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	scene, err := Wrk{Threads: 2, Connections: 4}.Scene(nil)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", scene.Serves)
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	s := http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) })}
	defer s.Close()
	go func() { _ = s.Serve(ln) }()
	if _, err := scene.Load(t.Context(), 20*time.Millisecond); err != nil || asked.Load() == 0 {
		t.Errorf("the server is not warm: %d requests, %v", asked.Load(), err)
	}
	if _, err := os.Stat(called); err == nil {
		t.Error("wrk was called for the warm-up")
	}
	m := lab.Metrics{}
	judge, err := scene.Load(t.Context(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if judge(m); m["ops"] != 9 {
		t.Errorf("wrk was not called: %v", m)
	}
}
