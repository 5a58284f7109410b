package export

import (
	"bytes"
	"encoding/hex"
	"unicode/utf8"

	"github.com/tallywheel/tallywheel/archive"
)

// hexMark stands before bytes in hexadecimal digits.
const hexMark = "hex:"

// appendCell appends what stands in a text cell for the data of a record.
func appendCell(dst []byte, how Text, of *archive.Stream, data []byte) []byte {
	if how == AsText || how == AsFramed && of.Frame == "line" && !of.Quarantine {
		if t := withoutEnd(data); isText(t) {
			return append(dst, t...)
		}
	}
	return hex.AppendEncode(append(dst, hexMark...), data)
}

// withoutEnd takes the end of a line off: how long it was is said by the column len.
func withoutEnd(data []byte) []byte {
	if t, ok := bytes.CutSuffix(data, []byte("\n")); ok {
		return bytes.TrimSuffix(t, []byte("\r"))
	}
	return data
}

// plain are the bytes below 0x80 that a text may have.
var plain = func() (t [utf8.RuneSelf]bool) {
	for b := byte(' '); b < 0x7F; b++ {
		t[b] = true
	}
	t['\t'], t['\r'], t['\n'] = true, true, true
	return t
}()

func isText(b []byte) bool {
	ascii := true
	for _, c := range b {
		if c >= utf8.RuneSelf {
			ascii = false
		} else if !plain[c] {
			return false
		}
	}
	return (ascii || utf8.Valid(b)) && !bytes.HasPrefix(b, []byte(hexMark))
}

// isFormula reports whether a spreadsheet may take a cell for more than text or a number, or for
// one that was guarded.
func isFormula(b []byte) bool {
	if len(b) == 0 {
		return false
	}
	switch b[0] {
	case '=', '@', '\t', '\r', '\'':
		return true
	case '+', '-':
		return !isNumber(b[1:])
	}
	return false
}

// isNumber reports whether b is digits, with a point and an exponent if any.
func isNumber(b []byte) bool {
	digits := func() (n int) {
		for len(b) > 0 && b[0] >= '0' && b[0] <= '9' {
			n, b = n+1, b[1:]
		}
		return n
	}
	n := digits()
	if len(b) > 0 && b[0] == '.' {
		b = b[1:]
		n += digits()
	}
	if n == 0 {
		return false
	}
	if len(b) > 0 && b[0]|0x20 == 'e' {
		if b = b[1:]; len(b) > 0 && (b[0] == '+' || b[0] == '-') {
			b = b[1:]
		}
		if digits() == 0 {
			return false
		}
	}
	return len(b) == 0
}
