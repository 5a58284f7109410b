package lab

import "context"

func init() { unknownIsWrong = true }

// AsksWrongly is asksWrongly, for the tests of all experiments.
func (e *Experiment) AsksWrongly() string { return e.asksWrongly() }

// Asked are the contestants, cells and metrics that the claims of an experiment ask for; a cell may
// be a part of one.
func (e *Experiment) Asked() (contestants []*Contestant, cells []Params, metrics []Metric) {
	v := e.everything()
	for _, c := range e.Claims {
		_, all, _ := c.judge(v)
		for _, a := range all {
			contestants, cells = append(contestants, a.contestant), append(cells, a.cell)
			metrics = append(metrics, a.metric)
		}
	}
	return contestants, cells, metrics
}

// ShortestTurn has a contestant take the shortest turn that it ever has in a cell.
func (b *Bench) ShortestTurn(ctx context.Context, e *Experiment, c *Contestant, cell Params) (Metrics, error) {
	o, err := turn{b, c, cell, e.least(cell), false}.run(ctx, e)
	return o.metrics, err
}

// Compiles runs a program as compilers are run, which starts another.
func Compiles(ctx context.Context, path string) error {
	_, err := kept(ctx, "", nil, "sh", "-c", compiles, path)
	return err
}
