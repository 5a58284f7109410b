package gateway

import (
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/ledger"
)

// Verdict says in one line what was lost, and why. good is false when anything was, or when the books do not balance.
func Verdict(s ledger.Sheet) (text string, good bool) {
	since := time.Unix(0, int64(s.Since)).Local().Format("2006-01-02 15:04:05")
	var lost uint64
	causes := map[string]uint64{}
	var broken []string
	for _, p := range s.Ports {
		lost += p.Lost()
		causes["seen corrupt"] += p.Frames.MissingCorrupt
		causes["never seen"] += p.Frames.MissingUnseen
		for cause, n := range p.Frames.Dropped {
			causes["dropped: "+strings.ReplaceAll(cause, "_", " ")] += n
		}
		if len(p.Unbalanced) > 0 {
			broken = append(broken, p.ID)
		}
	}
	switch {
	case len(broken) > 0:
		return "the books do not balance: " + strings.Join(broken, ", "), false
	case lost == 0:
		return fmt.Sprintf("0 lost since %s", since), true
	}
	var names []string
	for name, n := range causes {
		if n > 0 {
			names = append(names, name)
		}
	}
	sort.Slice(names, func(i, j int) bool {
		if causes[names[i]] != causes[names[j]] {
			return causes[names[i]] > causes[names[j]]
		}
		return names[i] < names[j]
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%d %s", causes[name], name)
	}
	return fmt.Sprintf("%d lost since %s: %s", lost, since, strings.Join(names, ", ")), false
}
