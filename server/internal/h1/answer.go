package h1

import (
	"net/http"

	"github.com/tallywheel/tallywheel/server/internal/loop"
)

// Answer is what a LeanHandler says.
type Answer struct {
	Status int
	Type   string // Content-Type; "": none
	Fields []byte // "Name: value\r\n", any number, by AddField
	Body   []byte // in memory of the loop: use Append
	Static []byte // instead of Body: memory that never changes
	Close  bool   // the connection is closed after the answer

	memory *loop.Memory // nil: of the Go heap
}

// reset makes the answer ready for the next request. Nothing of the last one stays but memory that
// the loop made.
func (a *Answer) reset(m *loop.Memory) {
	if cap(a.Body) > loop.LargeChunk {
		m.Put(a.Body)
		a.Body = nil
	}
	*a = Answer{Status: http.StatusOK, Fields: a.Fields[:0], Body: a.Body[:0], memory: m}
}

// NewAnswer is an answer for use without a loop.
func NewAnswer() *Answer { return &Answer{Status: http.StatusOK} }

// Append adds to the body.
func (a *Answer) Append(b []byte) {
	a.Static = nil
	need := len(a.Body) + len(b)
	if need <= cap(a.Body) || a.memory == nil {
		a.Body = append(a.Body, b...)
		return
	}
	larger := append(append(a.memory.Get(max(need, 2*cap(a.Body))), a.Body...), b...) // b may lie in the body
	a.memory.Put(a.Body)
	a.Body = larger
}

// AppendString adds to the body.
func (a *Answer) AppendString(s string) {
	a.Reserve(len(s))
	a.Body = append(a.Body, s...)
}

// Reserve makes room for n more bytes of body.
func (a *Answer) Reserve(n int) {
	a.Static = nil
	if need := len(a.Body) + n; need > cap(a.Body) && a.memory != nil {
		a.Body = a.memory.Grow(a.Body, need)
	}
}

// AddField adds a header field. Names and values that could end the field are left out.
func (a *Answer) AddField(name, value string) { a.Fields = appendField(a.Fields, name, value) }

// Bytes is the body.
func (a *Answer) Bytes() []byte {
	if a.Static != nil {
		return a.Static
	}
	return a.Body
}

func (a *Answer) size() int { return len(a.Bytes()) }

// appendHead appends the head of the answer to b.
func (a *Answer) appendHead(b, date []byte, p *plan, minor int) []byte {
	if a.Status == http.StatusOK && minor > 0 {
		b = append(b, "HTTP/1.1 200 OK\r\nDate: "...)
	} else {
		b = append(statusLine(b, minor, a.Status), "Date: "...)
	}
	b = append(b, date...)
	b = append(b, "\r\n"...)
	if a.Type != "" && bodyAllowed(a.Status) {
		b = append(b, "Content-Type: "...)
		b = append(b, headerText(a.Type)...)
		b = append(b, "\r\n"...)
	}
	b = append(b, a.Fields...)
	return append(appendFraming(b, p, ""), "\r\n"...)
}

// EachField takes header fields apart that AddField has put together.
func EachField(b []byte, each func(name, value string)) {
	for len(b) > 0 {
		i, j := 0, 0
		for b[i] != ':' {
			i++
		}
		for b[j] != '\n' {
			j++
		}
		each(string(b[:i]), string(b[i+2:j-1]))
		b = b[j+1:]
	}
}

// BodyAllowed reports whether an answer with that status may have a body.
func BodyAllowed(status int) bool { return bodyAllowed(status) }
