package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Size is a number of bytes; in a file it may carry KiB, MiB, GiB, TiB, or kB, MB, GB, TB.
type Size int64

// sizePattern has the number and the unit in groups. Bytes without a unit are whole.
const sizePattern = `^(?:([0-9]+(?:\.[0-9]+)?)\s*([kKMGT]i?B)|([0-9]+)\s*B?)$`

var sizeForm = regexp.MustCompile(sizePattern)

// ParseSize reads a size.
func ParseSize(text string) (Size, error) {
	m := sizeForm.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return 0, fmt.Errorf("%q: want a number with KiB, MiB, GiB, kB, MB or GB", text)
	}
	n, _ := strconv.ParseFloat(m[1]+m[3], 64) // the form admits numbers only
	unit := 1.0
	if m[2] != "" {
		step := 1000.0
		if strings.Contains(m[2], "i") {
			step = 1024
		}
		for range strings.IndexByte("KMGT", strings.ToUpper(m[2])[0]) + 1 {
			unit *= step
		}
	}
	if n*unit > 1<<53 {
		return 0, fmt.Errorf("%q is too large", text)
	}
	return Size(n * unit), nil
}

// String is the size in the largest unit that says it exactly.
func (s Size) String() string {
	for i, unit := range []string{"TiB", "GiB", "MiB", "KiB"} {
		if of := Size(1) << (40 - 10*i); s != 0 && s%of == 0 {
			return strconv.FormatInt(int64(s/of), 10) + unit
		}
	}
	return strconv.FormatInt(int64(s), 10)
}
