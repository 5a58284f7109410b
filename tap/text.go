package tap

import (
	"bytes"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tallywheel/tallywheel/recorder"
)

// line is one thing to be shown, whatever the format.
type line struct {
	item
	data  []byte
	gap   int64  // ns since the frame, or the damage, before; < 0: there was none, or the clock was set back
	what  string // damage: its name
	marks int    // damage: frames that failed their check
	bytes int    // damage: all its bytes, of which data is the first part
	frame string // framing
}

// format makes lines out of what happens. Each line that it appends ends in a line feed.
type format interface {
	frame(b []byte, l *line) []byte
	damage(b []byte, l *line) []byte
	missing(b []byte, l *line) []byte
	note(b []byte, l *line) []byte
	unseen(b []byte, l *line) []byte
}

// text is the format for people.
type text struct {
	zone  *time.Location
	color bool
}

const (
	red   = "\x1b[31m"
	dim   = "\x1b[2m"
	plain = "\x1b[0m"
)

// timeWidth and gapWidth are the columns of a line, in characters.
const (
	timeForm = "15:04:05.000000"
	gapWidth = 11
)

func (t text) head(b []byte, l *line) []byte {
	b = time.Unix(0, l.at).In(t.zone).AppendFormat(b, timeForm)
	gap := ""
	if l.gap >= 0 {
		gap = fmt.Sprintf("+%d.%06d", l.gap/1e9, l.gap%1e9/1e3)
	}
	return fmt.Appendf(b, " %*s  ", gapWidth, gap)
}

func (t text) frame(b []byte, l *line) []byte {
	b = t.head(b, l)
	if l.numbered {
		b = fmt.Appendf(b, "%d#%d  ", l.device, l.number)
	}
	b = content(b, l.data)
	switch {
	case l.fate.Repeated:
		b = append(b, "  (again)"...)
	case l.fate.Late:
		b = append(b, "  (late)"...)
	}
	return append(b, '\n')
}

// content is text alone where that says all but the end of the line, else hexadecimal and text.
func content(b, data []byte) []byte {
	if s := bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte("\r")); len(s) > 0 && printable(s) {
		return append(b, s...)
	}
	b = hex(b, data)
	b = append(b, "  |"...)
	for _, c := range data {
		if c < ' ' || c > '~' {
			c = '.'
		}
		b = append(b, c)
	}
	return append(b, '|')
}

func hex(b, data []byte) []byte {
	const digits = "0123456789abcdef"
	for i, c := range data {
		if i > 0 {
			b = append(b, ' ')
		}
		b = append(b, digits[c>>4], digits[c&15])
	}
	return b
}

// printable reports whether b is text that a terminal shows as it is.
func printable(b []byte) bool {
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 || !unicode.IsPrint(r) && r != '\t' {
			return false
		}
		b = b[n:]
	}
	return true
}

func (t text) damage(b []byte, l *line) []byte {
	color := red
	if l.lead || l.part == recorder.AtStop {
		color = dim
	}
	b = t.paint(b, color)
	b = t.head(b, l)
	b = fmt.Appendf(b, "%s: %s  ", l.what, plural(l.bytes, "byte"))
	b = content(b, l.data)
	if l.bytes > len(l.data) {
		b = append(b, " …"...)
	}
	return t.end(b)
}

func (t text) missing(b []byte, l *line) []byte {
	last := l.fate.From + l.fate.Missing - 1
	what := fmt.Sprintf("%d missing: %d to %d", l.fate.Missing, l.fate.From, last)
	if l.fate.Missing == 1 {
		what = fmt.Sprintf("1 missing: %d", last)
	}
	if l.fate.Corrupt > 0 {
		what += fmt.Sprintf(", %d of it seen damaged", l.fate.Corrupt)
	}
	return t.say(b, red, what)
}

func (t text) note(b []byte, l *line) []byte {
	if l.bad {
		return t.say(b, red, l.text)
	}
	return t.say(b, dim, l.text)
}

func (t text) unseen(b []byte, l *line) []byte {
	what := fmt.Sprintf("%d frames not shown (%d bytes): the output is too slow", l.counts.frames, l.counts.bytes)
	if n := l.counts.missing; n > 0 {
		what += fmt.Sprintf("; %d missing before them", n)
	}
	return t.say(b, red, what)
}

func plural(n int, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return fmt.Sprintf("%d %ss", n, unit)
}

// say is a line that is no frame.
func (t text) say(b []byte, color, what string) []byte {
	b = t.paint(b, color)
	b = append(b, "── "...)
	return t.end(append(b, clean(what)...))
}

func (t text) paint(b []byte, color string) []byte {
	if t.color {
		b = append(b, color...)
	}
	return b
}

func (t text) end(b []byte) []byte {
	if t.color {
		b = append(b, plain...)
	}
	return append(b, '\n')
}

// clean keeps what a terminal would obey out of a line.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
