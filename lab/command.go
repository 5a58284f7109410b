package lab

import (
	"fmt"
	"strings"
	"unicode"
)

// Command is the command line that runs an experiment with some flags. Its report has a folder of
// its own, which `tallywheel advise` finds: it replaces that of no other experiment.
func Command(experiment string, flags ...string) string {
	argv := append([]string{"tallywheel", "lab", "run", experiment}, flags...)
	return strings.Join(append(argv, "--out", "lab-results-"+experiment), " ")
}

// where is the flags of a run that say where it measures: elsewhere the figures are others.
func (o Options) where() (flags []string) {
	if o.Dir != "" && o.Dir != "." {
		flags = append(flags, "--dir", shellWord(o.Dir))
	}
	if o.CPU >= 0 {
		flags = append(flags, "--cpu", fmt.Sprint(o.CPU))
	}
	return flags
}

// shellWord is a text as a shell takes it for one word.
func shellWord(text string) string {
	plain := strings.IndexFunc(text, func(r rune) bool {
		return !strings.ContainsRune("/._-+:,@%", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) < 0
	if plain && text != "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// Count is so many of something: "1 round", "2 rounds".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
