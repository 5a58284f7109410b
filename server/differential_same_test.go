package server

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// answer is what came back, as far as it must be the same.
type answer struct {
	Status  int
	Proto   string
	Header  http.Header
	Length  int64
	Coding  []string
	Close   bool
	Body    string
	BodyErr bool
	Trailer http.Header
}

// refused reports whether a status is one of those by which servers refuse requests that they do
// not understand.
func refused(status int) bool { return slices.Contains([]int{400, 413, 417, 431, 501, 505}, status) }

var noted = []string{"Content-Type", "Trailer", "Link", "X-After", "X-Many", "X-Break", "Injected", "Bad Name", "Late"}

// ask sends raw in two parts with something else between, ends its side, and returns the answers.
func ask(addr string, raw []byte, split int, between func()) ([]answer, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	_, _ = c.Write(raw[:split])
	if between != nil {
		between()
	}
	_, _ = c.Write(raw[split:])
	_ = c.(*net.TCPConn).CloseWrite()
	r := bufio.NewReader(c)
	var all []answer
	for {
		if _, err := r.Peek(1); err != nil {
			if err != io.EOF && !strings.Contains(err.Error(), "reset") {
				return all, err
			}
			return all, nil
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return all, fmt.Errorf("after %d answers: %w", len(all), err)
		}
		var b []byte
		if resp.Header.Get("X-Method") != http.MethodHead {
			b, err = io.ReadAll(resp.Body)
		}
		a := answer{
			Status: resp.StatusCode, Proto: resp.Proto, Length: resp.ContentLength, Coding: resp.TransferEncoding,
			Close: resp.Close,
			Body:  string(b), BodyErr: err != nil, Header: http.Header{}, Trailer: resp.Trailer,
		}
		for _, k := range noted {
			if v, ok := resp.Header[k]; ok {
				a.Header[k] = v
			}
		}
		all = append(all, a)
		if refused(resp.StatusCode) && resp.Close {
			_, _ = io.Copy(io.Discard, r) // its body, which a HEAD would hide
			return all, nil
		}
	}
}

// same compares the answers of net/http with ours. Ours may refuse what a strict reading refuses,
// after having answered all before it.
func same(raw []byte, want, got []answer) string {
	for i := range min(len(want), len(got)) {
		w, g := want[i], got[i]
		if w.Close && g.Close && g.Length < 0 && len(g.Coding) == 0 && g.Body == w.Body {
			// Whoever sends more behind a request that ends the connection may get a reset after
			// the answer, by every server, where that ends with the connection.
			w.BodyErr, g.BodyErr = false, false
		}
		if refused(g.Status) && g.Close && len(got) == i+1 && strict(raw) {
			return ""
		}
		if g.Status >= 400 && w.Status != g.Status && strict(raw) {
			if len(got) != i+1 {
				return "something follows a refusal"
			}
			return ""
		}
		if refused(w.Status) && w.Close && !refused(g.Status) && emptyLine.Match(raw) {
			return ""
		}
		if refused(w.Status) && refused(g.Status) && w.Close && g.Close {
			continue // for one reason or another
		}
		if w.Status != g.Status {
			return fmt.Sprintf("answer %d: status %d, want %d", i, g.Status, w.Status)
		}
		if g.Close && !w.Close && undecided(raw) {
			if len(got) != i+1 {
				return "something follows an answer that closes"
			}
			return ""
		}
		if refusal := refused(w.Status) && w.Close; refusal { // its words are its own
			if !g.Close {
				return fmt.Sprintf("answer %d: a refusal that keeps the connection", i)
			}
			continue
		}
		if w.BodyErr && !g.BodyErr && strings.HasPrefix(g.Body, w.Body) {
			// net/http closed while there was more to read, and its answer was lost in a reset
			w.BodyErr, w.Body = false, g.Body
		}
		if cut := !strings.Contains(w.Body, `"BodyErr":""`); cut && g.Close {
			w.Close = true // we say that we close after a body that ended early; net/http only does it
		}
		if w.Body != g.Body || w.BodyErr != g.BodyErr || w.Length != g.Length || w.Close != g.Close ||
			w.Proto != g.Proto ||
			!slices.Equal(w.Coding, g.Coding) || fmt.Sprint(w.Header) != fmt.Sprint(g.Header) ||
			fmt.Sprint(w.Trailer) != fmt.Sprint(g.Trailer) {
			if len(w.Body) > 1000 {
				w.Body, g.Body = fmt.Sprint(len(w.Body), " bytes"), fmt.Sprint(len(g.Body), " bytes")
			}
			return fmt.Sprintf("answer %d:\n got %+v\nwant %+v", i, g, w)
		}
	}
	if len(got) == len(want)-1 && refused(want[len(got)].Status) &&
		bytes.HasSuffix(bytes.TrimRight(raw, "\n"), []byte("\r")) {
		return "" // an empty line and no request behind it
	}
	if len(want) != len(got) {
		if strict(raw) && (len(got) < len(want) || len(got) == len(want)+1 && refused(got[len(want)].Status)) {
			return ""
		}
		return fmt.Sprintf("%d answers, want %d", len(got), len(want))
	}
	return ""
}

// undecided reports whether raw may ask in HTTP/1.0 both to close the connection and to keep it;
// see the package comment.
func undecided(raw []byte) bool {
	low := bytes.ToLower(raw)
	return bytes.Contains(low, []byte("http/1.0")) && bytes.Contains(low, []byte("close")) &&
		bytes.Contains(low, []byte("keep-alive"))
}

// unusual are hosts, chunk extensions and targets that net/http lets pass without looking closely.
var unusual = regexp.MustCompile(`(?i)\nhost:[ \t]*\S*([%\[\]]|:\S*[^0-9\r\n])|\n[0-9a-f]+[ \t]*;|(^|\n)\S+ \S*://([/?# ]|$)`)

// emptyLine matches an empty line before a request, which RFC 9112 wants ignored; net/http refuses
// it, but after a POST.
var emptyLine = regexp.MustCompile(`(^|[^\n]|\n\r\n)\r\n[!-~]+ \S+ HTTP/1`)

// strict reports whether raw has one of the shapes that net/http repairs and we refuse; see the
// package comment.
func strict(raw []byte) bool {
	if unusual.Match(raw) {
		return true
	}
	low := bytes.ToLower(raw)
	for i, c := range raw {
		if c == '\n' && (i == 0 || raw[i-1] != '\r') || c == '\r' && (i+1 == len(raw) || raw[i+1] != '\n') {
			return true
		}
	}
	return bytes.Contains(raw, []byte("\n ")) || bytes.Contains(raw, []byte("\n\t")) ||
		bytes.Count(low, []byte("content-length")) > 1 ||
		bytes.Contains(low, []byte("content-length")) && bytes.Contains(low, []byte("transfer-encoding")) ||
		bytes.Contains(low, []byte("transfer-encoding")) && bytes.Contains(low, []byte("http/1.0")) ||
		bytes.Contains(low, []byte("pri * http/2.0")) || bytes.Count(raw, []byte("\n")) > 250 ||
		bytes.ContainsAny(raw, "\x00\x01\x7f") ||
		bytes.Contains(low, []byte("chunked")) // white space behind a chunk size, names of trailer fields
}
