package archive

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/ledger"
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

// ParseTime reads when the records of a query begin or end, in ns since 1970: RFC 3339, or a time
// as a sheet, a verdict and the journal show it. The log has no times before 1970, nor after 2262:
// what is beyond is taken for the bound, which asks for the same records.
func ParseTime(s string) (int64, error) {
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		at, err = time.Parse(ledger.TimeLayout, s)
	}
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q: want RFC 3339, as 2026-01-02T15:04:05Z", s)
	case at.Before(time.Unix(0, 1)):
		return 1, nil // 0 asks for all
	case at.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64, nil
	}
	return at.UnixNano(), nil
}

// contains reports whether the data of a record has what the query asks for.
func (q Query) contains(data []byte) bool {
	return len(q.Contains) == 0 || bytes.Contains(data, q.Contains)
}
