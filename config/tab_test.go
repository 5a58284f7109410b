package config

import (
	"strings"
	"testing"
)

// What YAML cannot read for want of quotes, or reads as something else, is told with what to do.
func TestTextWithoutQuotes(t *testing.T) {
	const source = "\nsources: [{id: a, tcp: {dial: 127.0.0.1:1}, frame: line}]\n"
	for text, want := range map[string]string{
		"forward: [{to: nats, urls: [nats://a:4222, \"nats://b:4222\"]}]":                      `forward[0].urls[0]: put it in quotes, as "nats://a:4222": `,
		"forward:\n  - {to: mqtt, urls: [mqtt://[::1]:1883]}":                                  "within brackets, text with a colon, a bracket or a brace goes into quotes",
		"forward:\n  - {to: nats, subject: plant.{source}}":                                    "within brackets, text with a colon, a bracket or a brace goes into quotes",
		"forward:\n  - {to: nats, subject: {a: b}}":                                            "want text, not a mapping",
		"forward:\n  - {to: nats, batch: {frames: 1}, urls: [\"nats://a:4222\"], replicas: [}": "",
	} {
		_, err := Parse([]byte(text + source))
		if err == nil || !strings.Contains(err.Error(), want) || want == "" && strings.Contains(err.Error(), "quotes") {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
	if _, err := Parse([]byte("forward:\n  - to: nats\n    urls: [nats://a:4222, nats://b:4222]" +
		source)); err != nil {
		t.Error(err)
	}
}

// A tab in the indentation is named with its line, and with what to do.
func TestTabInTheIndentation(t *testing.T) {
	for text, line := range map[string]string{
		"log: {dir: ./x}\nsources:\n  - id: a\n\tframe: line\n": "line 4: ",
		"log:\n\tdir: ./x\n":                    "line 2: ",
		"log:\n  dir: ./x\n \tsync: batch\n":    "line 3: ",
		"sources:\n  -\tid: a\n    frame: line": "line 2: ",
		"\tlog: {dir: ./x}\n":                   "line 1: ",
	} {
		_, err := Parse([]byte(text))
		if want := line + "a tab in the indentation, where YAML wants spaces: replace it with spaces"; err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
	if _, err := Parse([]byte("log:\t{dir: ./x}\nsources: []\n")); err != nil { // it stands between words
		t.Error(err)
	}
}
