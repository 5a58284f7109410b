package server_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/server"
)

// disguises are header lines that some parsers take for "Transfer-Encoding: chunked" and others do
// not: those that the tool smuggler sends (github.com/defparam/smuggler at 2be871e, configs/), a
// byte at one or two of the four places around the name and the value, and some words.
func disguises() (all []string) {
	var marks []string
	for i := 1; i < 256; i++ {
		if i <= ' ' || i >= 0x7f {
			marks = append(marks, string([]byte{byte(i)}))
		}
	}
	line := func(at [4]string) string {
		return at[0] + "Transfer-Encoding" + at[1] + ":" + at[2] + "chunked" + at[3]
	}
	for _, m := range marks {
		for i := range 4 {
			for j := i; j < 4; j++ {
				at := [4]string{2: " "}
				at[i], at[j] = m, m
				all = append(all, line(at))
			}
		}
		te := line([4]string{2: " "})
		all = append(all, "X: X"+m+te, "X: X\r"+m+te, "X: X"+m+"\n"+te, te+m+"X: X", te+"\r"+m+"X: X", te+m+"\nX: X")
	}
	for _, name := range []string{
		"Transfer Encoding", "Transfer_Encoding", "Content-Encoding", "Transfer\r-Encoding", "Transf\x82r-Encoding",
		"TRANSFER-ENCODING", "tRANSFER-eNCODING",
	} {
		all = append(all, name+": chunked", name+":chunked")
	}
	for _, value := range []string{
		"chunked, cow", "cow, chunked", "\n chunked", `"chunked"`, "'chunked'", "chunk", "cHuNkeD", "cow chunked bar",
		"ch\x96nked",
		"chunked\r\nTransfer-Encoding: cow", "cow\r\nTransfer-Encoding: chunked",
		"identity\r\nTransfer-Encoding: chunked",
		"chunked\r\nTransfer-Encoding: identity", "", "chunked;q=1", "chunked,", ",chunked", "x-chunked",
	} {
		all = append(all, "Transfer-Encoding: "+value)
	}
	return all
}

// otherField reports whether a line is a good header field, of another name than Transfer-Encoding:
// then the length says where the body ends, for everybody.
func otherField(line string) bool {
	name, value, ok := strings.Cut(line, ":")
	if !ok || name == "" || strings.EqualFold(name, "Transfer-Encoding") {
		return false
	}
	for _, c := range []byte(name) {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	for _, c := range []byte(value) {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// TestDisguisedCodings: a request has a length, and beside it what may be a coding in chunks.
// Behind its body by one reading lies a second request, which is a part of the body by the other.
// Such a request is refused, and with it all that comes on the connection; where the line is none
// about the coding, the length counts.
func TestDisguisedCodings(t *testing.T) {
	const second = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"
	inBody := "0\r\n\r\n" + second                                       // … by the length
	inChunk := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(second), second) // … by the coding
	for _, w := range []way{
		{server.Auto, server.Goroutine},
		{server.Auto, server.Coroutine},
		{server.Auto, server.Inline},
	} {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			var hidden atomic.Int64
			cfg := server.Config{}
			if w.Mode == server.Inline {
				cfg.Lean = func(a *server.LeanResponse, r *server.LeanRequest) {
					if string(r.Target()) == "/hidden" {
						hidden.Add(1)
					}
					fmt.Fprintf(a, "%d", len(r.Body()))
				}
			} else {
				cfg.Handler = http.HandlerFunc(func(a http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/hidden" {
						hidden.Add(1)
					}
					n, _ := io.Copy(io.Discard, r.Body)
					fmt.Fprintf(a, "%d", n)
				})
			}
			r := serve(t, w, cfg)
			lines := disguises()
			var all sync.WaitGroup
			var next, wrong atomic.Int64
			for range 8 {
				all.Go(func() {
					for i := int(next.Add(1)) - 1; i < len(lines) && wrong.Load() < 5; i = int(next.Add(1)) - 1 {
						if err := disguised(r.addr, lines[i], inBody, len(inBody), 1); err != nil {
							t.Errorf("%q, a body with %q: %v", lines[i], inBody, err)
							wrong.Add(1)
						}
						if otherField(lines[i]) {
							continue // the second request is one
						}
						if err := disguised(r.addr, lines[i], inChunk, len(strconv.FormatInt(int64(len(second)), 16))+2,
							0); err != nil {
							t.Errorf("%q, a body with %q: %v", lines[i], inChunk, err)
							wrong.Add(1)
						}
					}
				})
			}
			all.Wait()
			if n := hidden.Load(); n > 0 {
				t.Errorf("%d hidden requests were answered", n)
			}
			t.Logf("%d lines", len(lines))
		})
	}
}

// disguised sends one request, and checks that it is refused, or, where the line is another field,
// answered by so many answers.
func disguised(addr, line, body string, length, answers int) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(soon))
	_, _ = fmt.Fprintf(c, "POST / HTTP/1.1\r\n%s\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", line, length, body)
	_ = c.(*net.TCPConn).CloseWrite()
	got, err := io.ReadAll(c)
	if err != nil && len(got) == 0 {
		return err
	}
	n := bytes.Count(got, []byte("HTTP/1.1 "))
	refused := bytes.HasPrefix(got, []byte("HTTP/1.1 400 ")) || bytes.HasPrefix(got, []byte("HTTP/1.1 501 "))
	switch {
	case otherField(line):
		if n != answers || !bytes.HasSuffix(got, []byte(fmt.Sprintf("\r\n\r\n%d", length))) {
			return fmt.Errorf("%d answers, want %d, to a body of %d bytes: %q", n, answers, length, got)
		}
	case n != 1 || !refused:
		return fmt.Errorf("it is not refused: %q", got)
	}
	return nil
}
