package lab

import "fmt"

// asksWrongly says which claim, or whether the advice, asks for a contestant or a setting that the
// experiment has not; "" if none does. Such a claim would read "not measurable here" for ever, so
// an experiment with one does not start.
func (e *Experiment) asksWrongly() string {
	v := e.everything()
	for _, c := range e.Claims {
		if _, ok := c.Judge(v); !ok && len(e.Contestants) > 0 {
			return fmt.Sprintf("the claim %q asks for a contestant or a setting that it has not; it wants %s", c.Claim,
				c.Needs)
		}
	}
	if e.Advice != nil && e.Advice(v) == "" {
		return "its advice asks for a contestant or a setting that it has not"
	}
	return ""
}

// everything is results in which every contestant was measured in every cell that it is for, by all
// metrics and as many rounds as a verdict needs.
func (e *Experiment) everything() View {
	r := ExperimentResult{Name: e.Name, Rounds: MinRounds}
	cells := []Params{{}}
	if e.Cells != nil {
		cells = append(e.Cells(Quick()), e.Cells(Full())...)
	}
	metrics := map[string]Figure{}
	for _, m := range append(AllMetrics(), e.Metrics...) {
		if m != Others && m != Steal && m != Throttled { // the machine did nothing else
			metrics[m.String()] = Summarise("", []float64{1, 2, 3, 4, 5, 6, 7, 8})
		}
	}
	for _, cell := range cells {
		for _, c := range e.Contestants {
			row := Row{Contestant: c.Name, Params: cell, Metrics: metrics}
			if c.Skip == nil || !c.Skip(cell) {
				r.Rows = append(r.Rows, row)
			}
		}
	}
	return View{&r}
}
