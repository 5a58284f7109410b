// Package startup measures how long programs take from their execution to their first line, for the
// experiments that ask that.
package startup

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

// Reader is told the line of each start that counts, without its end, and makes figures of them.
type Reader interface {
	Read(line string) error
	Values(program string) ([]contestant.Value, error) // program is the file that was executed
}

// Work is a contestant that executes the program which the parameter "program" has, an argument a
// line, again and again. Before each start, the files of "evict" are taken out of the page cache,
// one a line. Each turn has a reader of its own.
func Work(reader func() Reader) contestant.Work {
	return func(t *contestant.Turn) error { return measure(t, reader()) }
}

func measure(t *contestant.Turn, r Reader) error {
	argv := strings.Split(t.Text("program"), "\n")
	path, err := exec.LookPath(argv[0])
	if err == nil {
		argv[0] = path
		_, _, err = once(argv) // its pages are in the cache then
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
		d, line, err := once(argv)
		if err == nil {
			err = r.Read(line)
		}
		if err != nil {
			return err
		}
		took = append(took, int64(d))
	}
	length, err := t.Done()
	if err != nil {
		return err
	}
	more, err := r.Values(argv[0])
	if err != nil {
		return err
	}
	mean, scatter := meanAndDeviation(took)
	v := append(contestant.Latencies(took), more...) // sorts them
	return t.Result(length, uint64(len(took)), append(v,
		contestant.Value{Metric: "latency_us_mean", V: mean / 1e3},
		contestant.Value{Metric: "latency_us_p95", V: float64(took[len(took)*95/100]) / 1e3},
		contestant.Value{Metric: "stddev_us", V: scatter / 1e3})...)
}

// once is how long it was from before the program was executed to its line, and the line.
func once(argv []string) (d time.Duration, line string, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, "", err
	}
	defer r.Close()
	began := time.Now()
	p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{Env: os.Environ(), Files: []*os.File{nil, w, os.Stderr}})
	if err := errors.Join(err, w.Close()); err != nil {
		return 0, "", err
	}
	line, readErr := bufio.NewReader(r).ReadString('\n')
	d = time.Since(began)
	state, err := p.Wait()
	if err == nil && (!state.Success() || readErr != nil) {
		err = fmt.Errorf("%s has printed %q, and ended with %v", argv[0], line, state)
	}
	return d, strings.TrimSuffix(line, "\n"), err
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
