package doctor

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tallywheel/tallywheel/uring"
)

// upgrade says what this kernel is too old for, which version has all of it, how to come there, and
// how to come back. What was forbidden, and is there, is no question of age.
func (k Kernel) upgrade(ask *Asker) Finding {
	f := Finding{
		Area: "kernel", Name: "age", State: Good, Found: "it has every feature of io_uring that is used",
		Wanted: "every feature of io_uring that is used",
		Why:    "what a kernel lacks is done by other means, which cost more",
	}
	features, order := ask.Rings()
	var lacks []string
	newest := ""
	for _, name := range order {
		var missing *uring.FeatureError
		if !errors.As(features[name], &missing) || missing.Since == "" || !errors.Is(missing, uring.ErrNotSupported) {
			continue
		}
		lacks = append(lacks, fmt.Sprintf("%s (%s)", name, missing.Since))
		if newest == "" || later(missing.Since, newest) {
			newest = missing.Since
		}
	}
	if len(lacks) == 0 {
		return f
	}
	old := k.or("/proc/sys/kernel/osrelease", "this kernel")
	f.State, f.Found, f.Wanted = Poor, "it lacks, with the version that has it: "+strings.Join(lacks, ", "),
		"Linux "+newest+" or later"
	f.How = fmt.Sprintf("install a kernel beside this one: that of the distribution's next release or of its backports (apt install -t …-backports linux-image-…), on a board its vendor's. "+
		"Try it for one start: GRUB_DEFAULT=saved, update-grub, grub-reboot ENTRY, restart, doctor again; then grub-set-default ENTRY keeps it. "+
		"To go back, restart before that, or choose %s in the boot menu; do not remove its package until the new one has recorded for some days. Where that cannot be, leave it: all works without", old)
	return f
}

// later says whether a version, as 6.10, is later than another.
func later(a, b string) bool {
	majorA, minorA, _ := strings.Cut(a, ".")
	majorB, minorB, _ := strings.Cut(b, ".")
	number := func(s string) int { n, _ := strconv.Atoi(s); return n } // 0 is the oldest
	if x, y := number(majorA), number(majorB); x != y {
		return x > y
	}
	return number(minorA) > number(minorB)
}
