package loadgen

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// WriteOha writes the result line by line as oha 1 prints its summary, in seconds and without
// colours, for programs and people who read that: https://github.com/hatoo/oha. What is not
// measured (how long names are looked up and connections made) is left out. An answer is a success
// there, whatever its status.
func (r *Result) WriteOha(w io.Writer) error {
	var b strings.Builder
	answers := uint64(0)
	for _, n := range r.Statuses {
		answers += n
	}
	errs := r.withoutAnswer()
	all := answers
	for _, n := range errs {
		all += uint64(n)
	}
	l, seconds := r.LatencyUs, max(r.Drained, 1e-9)
	fmt.Fprintf(&b, "Summary:\n  Success rate:\t%.2f%%\n  Total:\t%.4f sec\n",
		100*float64(answers)/float64(max(all, 1)), r.Drained)
	fmt.Fprintf(&b, "  Slowest:\t%.4f sec\n  Fastest:\t%.4f sec\n  Average:\t%.4f sec\n", float64(l.Max)/1e6,
		float64(l.Min)/1e6, l.Mean/1e6)
	fmt.Fprintf(&b, "  Requests/sec:\t%.4f\n\n", float64(all)/seconds)
	fmt.Fprintf(&b, "  Total data:\t%s\n  Size/request:\t%s\n  Size/sec:\t%s\n\n", ohaBytes(float64(r.Bytes)),
		ohaBytes(float64(r.Bytes/max(answers, 1))), ohaBytes(float64(r.Bytes)/seconds))
	r.ohaHistogram(&b)
	fmt.Fprintf(&b, "\nResponse time distribution:\n")
	for _, percent := range []float64{10, 25, 50, 75, 90, 95, 99, 99.9, 99.99} {
		fmt.Fprintf(&b, "  %.2f%% in %.4f sec\n", percent, float64(r.more.histogram().ValueAtQuantile(percent))/1e6)
	}
	fmt.Fprintf(&b, "\nStatus code distribution:\n")
	for _, status := range byCount(r.Statuses) {
		fmt.Fprintf(&b, "  [%d] %d responses\n", status, r.Statuses[status])
	}
	if len(errs) > 0 {
		fmt.Fprintf(&b, "\nError distribution:\n")
		for _, kind := range byCount(errs) {
			fmt.Fprintf(&b, "  [%d] %s\n", errs[kind], kind)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// withoutAnswer are the errors but for those that are answers' statuses.
func (r *Result) withoutAnswer() map[string]int {
	errs := maps.Clone(r.Errors)
	for status := range r.Statuses {
		delete(errs, kindOfStatus(status))
	}
	return errs
}

// byCount sorts by the count, the largest first.
func byCount[K cmp.Ordered, N int | uint64](counts map[K]N) []K {
	return slices.SortedFunc(maps.Keys(counts), func(a, b K) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
}

// ohaHistogram is of bins of one width, up to three times the mean; the last has all that is
// longer.
func (r *Result) ohaHistogram(b *strings.Builder) {
	const bins, width = 11, 32
	fmt.Fprintf(b, "Response time histogram:\n")
	l := r.LatencyUs
	least := float64(l.Min)
	step := max(min(float64(l.Max), 3*l.Mean)-least, 0) / bins
	var counts [bins]int64
	for _, bar := range r.more.histogram().Distribution() {
		i := bins - 1
		if step > 0 {
			i = min(int(max(float64(bar.From)-least, 0)/step), bins-1)
		}
		counts[i] += bar.Count
	}
	most := max(slices.Max(counts[:]), 1)
	for i, n := range counts {
		fmt.Fprintf(b, "  %5.3f sec [%d]%*s |%s\n", (least+step*float64(i+1))/1e6, n,
			len(strconv.FormatInt(most, 10))-len(strconv.FormatInt(n, 10)), "", strings.Repeat("■", int(width*n/most)))
	}
}

func ohaBytes(n float64) string {
	for _, u := range []struct {
		n    float64
		name string
	}{{1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.n {
			return fmt.Sprintf("%.2f %s", n/u.n, u.name)
		}
	}
	return fmt.Sprintf("%.0f B", n)
}
