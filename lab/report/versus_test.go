package report

import (
	"testing"

	"github.com/tallywheel/tallywheel/lab"
)

// TestVersus: a ratio is shown with the interval that decides whether the two differ.
func TestVersus(t *testing.T) {
	eight := func(v ...float64) []float64 { return append(v, v...) }
	ones := eight(1, 1, 1, 1)
	for _, c := range []struct {
		rounds []float64
		want   string
	}{
		{eight(1.2, 1.21, 1.22, 1.23), "1.21× (1.20–1.23)"},
		{eight(0.99, 1, 1.01, 1.02), "no difference above 2 %"},
		{[]float64{1.1, 1.2, 1.3}, "1.20× (1.10–1.30), too few rounds"},
	} {
		r, ok := lab.Compare(c.rounds, ones[:len(c.rounds)])
		if got := versus(r); !ok || got != c.want {
			t.Errorf("%v is %q, want %q", c.rounds, got, c.want)
		}
	}
}
