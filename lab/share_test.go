package lab

import "testing"

// TestShareShowsWhatDecides: a share is shown with the interval that the verdict is by, which is
// wider than that of the median, and with the bounds in percent.
func TestShareShowsWhatDecides(t *testing.T) {
	a := &Contestant{Name: "a"}
	samples := []float64{90, 99, 99.1, 99.2, 99.3, 99.4, 99.5, 99.6, 99.7, 110}
	r := ExperimentResult{Rows: []Row{{Contestant: "a", Metrics: map[string]Figure{
		WayShare.name: Summarise("%", samples),
	}}}}
	got, ok := View{&r}.Share(a, nil, WayShare, 0.98, 1.02, "")
	level, _ := View{&r}.Level(a, nil, WayShare, 100)
	if !ok || got.Here != level.times(WayShare, 100) || got.Needed != "98 % to 102 %" {
		t.Errorf("%+v, want %s", got, level.times(WayShare, 100))
	}
	// the interval of the median, of order statistics, is within the bounds: 99 to 99.7
	if f := r.Rows[0].Metrics[WayShare.name]; f.Lo < 98 || f.Hi > 102 || got.Verdict != NotMeasurable {
		t.Errorf("%s by %.4g to %.4g; the median's interval is %v to %v", got.Verdict, 100*level.Lo, 100*level.Hi, f.Lo, f.Hi)
	}
}
