package processfacts

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

// exitFunctions looks for the functions by which the article has a process end among the kernel's
// symbols.
func exitFunctions(*contestant.Turn) (contestant.Finding, error) {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return contestant.Finding{}, err
	}
	defer f.Close()
	articles := []string{"release_memory", "close_files", "unmap_pages", "remove_from_scheduler"}
	var theirs, own []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 { // the fourth is a module
			continue
		}
		switch name := fields[2]; {
		case slices.Contains(articles, name):
			theirs = append(theirs, name)
		case slices.Contains([]string{"do_exit", "exit_mm", "exit_files"}, name):
			own = append(own, name)
		}
	}
	if err := lines.Err(); err != nil {
		return contestant.Finding{}, err
	}
	if len(own) == 0 {
		return contestant.Finding{}, errors.New("/proc/kallsyms lists no do_exit: its functions cannot be seen here")
	}
	return contestant.Finding{
		Yes: len(theirs) == len(articles),
		Text: fmt.Sprintf("/proc/kallsyms has %d of the article's 4 functions, and of the kernel's own %s", len(theirs),
			strings.Join(own, ", ")),
	}, nil
}
