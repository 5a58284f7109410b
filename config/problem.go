package config

import (
	"fmt"
	"strings"
)

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	File string `json:"file,omitempty"` // "" if it was not read from a file
	Line int    `json:"line,omitempty"` // 0 if it stands in no file
	Path string `json:"path"`           // as sources[2].tcp.listen; "" is the whole
	Text string `json:"text"`

	key string // below Path, that should not be there
}

// Error is one line: where, and what.
func (p Problem) Error() string {
	var parts []string
	if p.File != "" {
		parts = append(parts, p.File)
	}
	if p.Line > 0 {
		parts = append(parts, fmt.Sprintf("line %d", p.Line))
	}
	if p.Path != "" {
		parts = append(parts, p.Path)
	}
	return strings.Join(append(parts, p.Text), ": ")
}

// Problems is all that is wrong with a configuration, in the order of the file.
type Problems []Problem

// Error has a line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].Error()
	}
	return strings.Join(lines, "\n")
}

func (p Problems) orNil() error {
	if len(p) == 0 {
		return nil
	}
	for i := range p {
		p[i].Text = short(p[i].Text, maxText)
	}
	return p
}

// maxText is how many bytes a problem says at most: what it quotes may be all of a large file.
const maxText = 500

// short leaves out the middle of a text that is too long: at its end it says what is wanted.
func short(text string, most int) string {
	if len(text) <= most {
		return text
	}
	half := most / 2
	return strings.ToValidUTF8(text[:half], "") + "…" + strings.ToValidUTF8(text[len(text)-half:], "")
}

func (p *Problems) add(path, format string, args ...any) {
	*p = append(*p, Problem{Path: path, Text: fmt.Sprintf(format, args...)})
}

// under adds the problems of a section.
func (p *Problems) under(section string, of Problems) {
	for _, one := range of {
		one.Path = below(section, one.Path)
		*p = append(*p, one)
	}
}

// below is a path within a section.
func below(section, path string) string {
	switch {
	case section == "":
		return path
	case path == "":
		return section
	case path[0] == '[':
		return section + path
	}
	return section + "." + path
}

// within reports whether a path is that of a section, or of something in it.
func within(path, section string) bool {
	rest, ok := strings.CutPrefix(path, section)
	return ok && (section == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}

// above is the path of the section that a path is in.
func above(path string) string { return path[:max(0, strings.LastIndexAny(path, ".["))] }
