package loadgen

import (
	"strings"
	"testing"
	"time"
)

// told is a result of which all is known: answers after 1 to 10 ms, of which the last is 503, two
// requests whose connections were reset, a connection that was not made, and an answer to nothing.
func told() *Result {
	x := &thread{
		latency: newHistogram(), errors: map[string]int{"reset": 2, "connect": 1, unasked: 1}, length: 2 * time.Second,
		counted:  2 * time.Second,
		received: 3 << 20, sent: 1500,
	}
	x.now = time.Second
	for i := range 10 {
		status := 200
		if i == 9 {
			status = 503
		}
		x.count(&conn{due: []time.Duration{x.now - time.Duration(i+1)*time.Millisecond}}, status)
	}
	return collect(&Config{URL: "http://127.0.0.1:1/", Connections: 4}, []*thread{x})
}

// What is printed for people and programs that know oha is as oha prints it.
func TestWriteOha(t *testing.T) {
	const want = `Summary:
  Success rate:	71.43%
  Total:	2.0000 sec
  Slowest:	0.0090 sec
  Fastest:	0.0010 sec
  Average:	0.0050 sec
  Requests/sec:	7.0000

  Total data:	3.00 MiB
  Size/request:	307.20 KiB
  Size/sec:	1.50 MiB

Response time histogram:
  0.002 sec [1] |■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■
  0.002 sec [1] |■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■
  0.003 sec [1] |■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■
  0.004 sec [0] |
  0.005 sec [1] |■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■
  0.005 sec [1] |■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■
  0.006 sec [1] |■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■
  0.007 sec [0] |
  0.008 sec [1] |■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■
  0.008 sec [1] |■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■
  0.009 sec [1] |■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■

Response time distribution:
  10.00% in 0.0010 sec
  25.00% in 0.0020 sec
  50.00% in 0.0050 sec
  75.00% in 0.0070 sec
  90.00% in 0.0080 sec
  95.00% in 0.0090 sec
  99.00% in 0.0090 sec
  99.90% in 0.0090 sec
  99.99% in 0.0090 sec

Status code distribution:
  [200] 9 responses
  [503] 1 responses

Error distribution:
  [2] reset
  [1] answer without a request
  [1] connect
`
	var b strings.Builder
	if err := told().WriteOha(&b); err != nil || b.String() != want {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// The same for k6.
func TestWriteK6(t *testing.T) {
	const want = `
  █ TOTAL RESULTS 

    HTTP
    http_req_duration.......................................................: avg=5ms min=1ms med=5ms max=9ms p(90)=8ms p(95)=9ms
    http_req_failed.........................................................: 25.00% 3 out of 12
    http_reqs...............................................................: 12     6/s

    EXECUTION
    iterations..............................................................: 12     6/s
    vus.....................................................................: 4      min=4 max=4
    vus_max.................................................................: 4      min=4 max=4

    NETWORK
    data_received...........................................................: 3.1 MB 1.6 MB/s
    data_sent...............................................................: 1.5 kB 750 B/s

`
	var b strings.Builder
	if err := told().WriteK6(&b); err != nil || b.String() != want {
		t.Errorf("%v\n%s", err, b.String())
	}
	for us, want := range map[float64]string{
		0: "0s", 0.5: "0.5µs", 999.999: "999.99µs", 1000: "1ms", 1239.9: "1.23ms", 1.5e6: "1.5s", 59.999e6: "59.99s",
		61e6: "1m1s", 3723e6: "1h2m3s",
	} {
		if got := k6Time(us); got != want {
			t.Errorf("%v µs is %s, want %s", us, got, want)
		}
	}
	for bytes, want := range map[float64]string{
		0: "0 B", 999: "999 B", 1500: "1.5 kB", 15_000: "15 kB",
		2.25e9: "2.3 GB",
	} {
		if got := k6Bytes(bytes); got != want {
			t.Errorf("%v bytes are %s, want %s", bytes, got, want)
		}
	}
}

// A result in which nothing was answered, or that was read from JSON, can be printed, too.
func TestFormatsOfNothing(t *testing.T) {
	empty := collect(&Config{}, []*thread{{latency: newHistogram()}})
	for _, r := range []*Result{empty, {}} {
		var b strings.Builder
		for _, err := range []error{r.WriteOha(&b), r.WriteK6(&b), r.WriteWrk(&b)} {
			if err != nil {
				t.Error(err)
			}
		}
		if s := b.String(); strings.Contains(s, "NaN") || strings.Contains(s, "Inf") {
			t.Error(s)
		}
	}
}
