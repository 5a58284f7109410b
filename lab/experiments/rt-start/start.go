package rtstart

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

// atLeast is how many starts a turn has at least: those of the article.
const atLeast = 50

// start executes the program that the parameter "program" has, an argument a line, again and again.
// Before each start, the files of "evict" are taken out of the page cache, one a line.
func start(t *contestant.Turn) error {
	argv := strings.Split(t.Text("program"), "\n")
	path, err := exec.LookPath(argv[0])
	if err == nil {
		argv[0] = path
		_, err = once(argv) // its pages are in the cache then
	}
	if err != nil {
		return err
	}
	out, err := evicted(t.Text("evict"))
	if err != nil {
		return err
	}
	defer out.close()
	until, err := t.Ready()
	if err != nil {
		return err
	}
	var took []int64
	for len(took) < atLeast || time.Now().Before(until) {
		if err := out.evict(); err != nil {
			return err
		}
		d, err := once(argv)
		if err != nil {
			return err
		}
		took = append(took, int64(d))
	}
	length, err := t.Done()
	if err != nil {
		return err
	}
	mean, scatter := meanAndDeviation(took)
	v := contestant.Latencies(took) // sorts them
	return t.Result(length, uint64(len(took)), append(v,
		contestant.Value{Metric: "latency_us_mean", V: mean / 1e3},
		contestant.Value{Metric: "latency_us_p95", V: float64(took[len(took)*95/100]) / 1e3},
		contestant.Value{Metric: "stddev_us", V: scatter / 1e3})...)
}

// once is how long it was from before the program was executed to its line.
func once(argv []string) (d time.Duration, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer r.Close()
	began := time.Now()
	p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{Env: os.Environ(), Files: []*os.File{nil, w, os.Stderr}})
	if err := errors.Join(err, w.Close()); err != nil {
		return 0, err
	}
	line, readErr := bufio.NewReader(r).ReadString('\n')
	d = time.Since(began)
	state, err := p.Wait()
	if err == nil && (!state.Success() || line != "hello\n") {
		err = fmt.Errorf("%s has printed %q, and ended with %v", argv[0], line, state)
	}
	return d, errors.Join(err, readErr)
}

// meanAndDeviation is the mean, and the standard deviation of a sample.
func meanAndDeviation(v []int64) (mean, deviation float64) {
	sum, squares := 0.0, 0.0
	for _, x := range v {
		sum += float64(x)
	}
	mean = sum / float64(len(v))
	for _, x := range v {
		squares += (float64(x) - mean) * (float64(x) - mean)
	}
	return mean, math.Sqrt(squares / float64(max(1, len(v)-1)))
}
