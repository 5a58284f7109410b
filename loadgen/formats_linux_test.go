package loadgen

import (
	"math"
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
    vus.....................................................................: 4      min=4       max=4
    vus_max.................................................................: 4      min=4       max=4

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

// TestWrkRates: requests in a second of a thread are what a thread had in seconds, errors too. The
// rate of the last 100 µs had the weight of a second.
func TestWrkRates(t *testing.T) {
	x := &thread{
		latency: newHistogram(), errors: map[string]int{}, length: 2 * time.Second,
		counted: 2*time.Second + 100*time.Microsecond,
	}
	for i := range 2002 { // two of them in the last piece
		x.now = time.Duration(i) * time.Millisecond
		if i >= 2000 {
			x.now = x.counted
		}
		status := 200
		if i%2 == 1 {
			status = 500
		}
		x.count(&conn{due: []time.Duration{x.now}}, status)
	}
	got := collect(&Config{}, []*thread{x, {latency: newHistogram(), counted: x.counted}}).more.rate
	want := 2002 / x.counted.Seconds()
	if math.Abs(got.mean-want/2) > 0.01 || got.max < 1000 || got.max > 1003 || math.Abs(got.stdev-want/2) > 2 {
		t.Errorf("%+v, want a mean of %.0f and one of %.0f and nothing", got, want/2, want)
	}
	short := &thread{
		latency: newHistogram(), errors: map[string]int{}, length: time.Second,
		counted: 500 * time.Millisecond,
	}
	for range 100 {
		short.count(&conn{due: []time.Duration{0}}, 200)
	}
	if got := collect(&Config{}, []*thread{short}).more.rate; got.mean != 200 || got.max != 200 || got.within != 100 {
		t.Errorf("of half a second: %+v", got)
	}
}

// TestK6Columns: there is a space between columns, however long a value is.
func TestK6Columns(t *testing.T) {
	r := told()
	r.Requests, r.Late, r.Connections, r.Errors = 12_345_678, 0, 100, map[string]int{}
	for _, failed := range []int{0, 1} {
		r.Errors["reset"] = failed
		r.Requests *= 1 - uint64(failed)
		var b strings.Builder
		if err := r.WriteK6(&b); err != nil {
			t.Fatal(err)
		}
		for _, want := range [][]string{
			{": 0.00%    0 out of 12345678\n", ": 12345678 6172839/s\n", ": 100      min=100           max=100\n"},
			{": 100.00% 1 out of 1\n", ": 1       0.5/s\n", ": 100     min=100    max=100\n", ": 3.1 MB  1.6 MB/s\n"},
		}[failed] {
			if !strings.Contains(b.String(), want) {
				t.Errorf("want %q in\n%s", want, b.String())
			}
		}
	}
}

// TestSamplesUntilTheEnd: a second in which nothing is answered is a sample, also behind the last
// answer; what a run overran its time by is one only if there was an answer in it.
func TestSamplesUntilTheEnd(t *testing.T) {
	x := &thread{
		latency: newHistogram(), errors: map[string]int{}, length: 4500 * time.Millisecond,
		counted: 4500*time.Millisecond + 10*time.Microsecond,
	}
	for _, want := range []int{0, 1} { // answers
		for range want {
			x.now = 1500 * time.Millisecond
			x.count(&conn{due: []time.Duration{0}}, 200)
		}
		all := collect(&Config{}, []*thread{x}).Samples
		if len(all) != 5 || all[1].Requests != uint64(want) || math.Abs(all[4].Seconds-0.5) > 1e-3 ||
			all[4].Requests != 0 {
			t.Errorf("%d answers: %+v", want, all)
		}
	}
	x.length, x.counted = 4*time.Second, 4*time.Second+10*time.Microsecond
	if all := collect(&Config{}, []*thread{x}).Samples; len(all) != 4 {
		t.Errorf("of four seconds: %+v", all)
	}
	x.counted = time.Second // it ended sooner than it was to
	x = &thread{latency: newHistogram(), length: x.length, counted: x.counted}
	if all := collect(&Config{}, []*thread{x}).Samples; len(all) != 1 {
		t.Errorf("of one second: %+v", all)
	}
}
