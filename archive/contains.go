package archive

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
)

// MaxContains is how many bytes a search for contents may name: more than that is no search.
const MaxContains = 256

// hexPrefix begins contents that are given as digits.
const hexPrefix = "hex:"

// ParseContains reads what the data of a record is to contain: a text as it stands, or bytes as
// hex:0d0a, where spaces may stand between the digits.
func ParseContains(s string) ([]byte, error) {
	want := []byte(s)
	if digits, ok := strings.CutPrefix(s, hexPrefix); ok {
		var err error
		if want, err = hex.DecodeString(strings.ReplaceAll(digits, " ", "")); err != nil || len(want) == 0 {
			return nil, fmt.Errorf("%q: want two digits for each byte, as hex:0d0a", s)
		}
	}
	if len(want) > MaxContains {
		return nil, fmt.Errorf("%d bytes: want at most %d", len(want), MaxContains)
	}
	return want, nil
}

// contains reports whether the data of a record has what the query asks for.
func (q Query) contains(data []byte) bool {
	return len(q.Contains) == 0 || bytes.Contains(data, q.Contains)
}
