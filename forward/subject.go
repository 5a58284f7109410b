package forward

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/tallywheel/tallywheel/config"
)

// Escape is the name of a source as one token of a subject, and as one level of a topic: letters,
// digits, '-' and '_' stand for themselves, and every other byte is '%' and two hexadecimal digits.
func Escape(source string) string {
	var b strings.Builder
	for i := range len(source) {
		c := source[i]
		if c == '-' || c == '_' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// Unescape is the name of a source that Escape made a token of.
func Unescape(token string) (string, error) {
	source, err := url.PathUnescape(token)
	if err != nil || Escape(source) != token {
		return "", fmt.Errorf("%q is no name of a source", token)
	}
	return source, nil
}

// quarantineToken comes behind the subject of a source for its bytes that were no frame.
const quarantineToken = "quarantine"

// subjectOf is the subject of a source by a template, with the separator of its destination.
func subjectOf(template, separator, source string, quarantine bool) string {
	s := strings.ReplaceAll(template, config.SourceToken, Escape(source))
	if quarantine {
		s += separator + quarantineToken
	}
	return s
}

// subjectsOf are those that a stream must take for a template.
func subjectsOf(template string, quarantine bool) []string {
	all := []string{strings.ReplaceAll(template, config.SourceToken, "*")}
	if quarantine {
		all = append(all, all[0]+"."+quarantineToken)
	}
	return all
}
