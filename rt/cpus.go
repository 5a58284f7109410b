package rt

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// CPUs is a set of CPUs by their numbers, in ascending order, each once.
type CPUs []int

// maxCPU bounds the numbers, so that a list cannot ask for much memory: no kernel is built for
// more.
const maxCPU = 8191

// ParseCPUs reads a list as taskset(1) and the kernel's own files have it: "0,3-5" or "0-10:2",
// which is every second one. White space around the list is ignored; an empty list is an error.
func ParseCPUs(list string) (CPUs, error) {
	var cpus CPUs
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		span, step, stepped := strings.Cut(part, ":")
		first, last, ranged := strings.Cut(span, "-")
		lo, err := cpuNumber(first)
		hi, by := lo, 1
		if err == nil && ranged {
			hi, err = cpuNumber(last)
		}
		if err == nil && stepped {
			by, err = strconv.Atoi(step)
		}
		if err != nil || hi < lo || by < 1 || stepped && !ranged {
			return nil,
				fmt.Errorf("CPU list %q: %q is no CPU and no range; write 0,3-5 or 0-10:2, with CPUs from 0 to %d",
					list, part, maxCPU)
		}
		for cpu := lo; cpu <= hi; cpu += min(by, maxCPU) {
			cpus = append(cpus, cpu)
		}
	}
	slices.Sort(cpus)
	return slices.Compact(cpus), nil
}

func cpuNumber(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err == nil && n > maxCPU {
		err = strconv.ErrRange
	}
	return int(n), err
}

// String is the list as taskset -c prints it, with ranges of three and more: "0,1,3-5".
func (c CPUs) String() string {
	var b strings.Builder
	for i := 0; i < len(c); {
		n := 1
		for i+n < len(c) && c[i+n] == c[i]+n {
			n++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(c[i]))
		switch {
		case n == 2:
			n = 1
		case n > 2:
			fmt.Fprintf(&b, "-%d", c[i+n-1])
		}
		i += n
	}
	return b.String()
}
