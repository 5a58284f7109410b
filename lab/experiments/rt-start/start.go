package rtstart

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

// start executes the program that the parameter "program" has, an argument a line, again and again.
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
	until, err := t.Ready()
	if err != nil {
		return err
	}
	var took []int64
	for len(took) == 0 || time.Now().Before(until) {
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
	scatter := contestant.Value{Metric: "stddev_us", V: deviation(took) / 1e3}
	return t.Result(length, uint64(len(took)), append(contestant.Latencies(took), scatter)...)
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
	b := make([]byte, 16)
	n, readErr := r.Read(b)
	d = time.Since(began)
	state, err := p.Wait()
	if err == nil && (!state.Success() || string(b[:n]) != "hello\n") {
		err = fmt.Errorf("%s has printed %q, and ended with %v", argv[0], b[:n], state)
	}
	return d, errors.Join(err, readErr)
}

// deviation is the standard deviation.
func deviation(v []int64) float64 {
	if len(v) < 2 {
		return 0
	}
	sum, squares := 0.0, 0.0
	for _, x := range v {
		sum += float64(x)
	}
	for mean, i := sum/float64(len(v)), 0; i < len(v); i++ {
		squares += (float64(v[i]) - mean) * (float64(v[i]) - mean)
	}
	return math.Sqrt(squares / float64(len(v)-1))
}
