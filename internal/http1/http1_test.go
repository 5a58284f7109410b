package http1

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

const maxTest = 4096

// parse gives the bytes one part after the other, as they would arrive.
func parse(b []byte, step int) (h Head, n int, err error) {
	for end := min(step, len(b)); ; end = min(end+step, len(b)) {
		if n, err = h.Parse(b[:end], maxTest); n > 0 || err != nil || end == len(b) {
			return h, n, err
		}
	}
}

func TestHead(t *testing.T) {
	raw := []byte("POST /a?b HTTP/1.1\r\nhOST: x:80\r\nContent-Length: 12\r\nConnection: foo, Upgrade\r\nUpgrade: ws\r\nExpect: 100-continue\r\nX: \t v \t\r\n\r\nbody")
	for step := 1; step <= len(raw); step++ {
		h, n, err := parse(raw, step)
		if err != nil || n != len(raw)-4 {
			t.Fatalf("step %d: %d, %v", step, n, err)
		}
		if m, target, host := h.Method.Of(raw), h.Target.Of(raw), h.Host.Of(raw); string(m) != "POST" ||
			string(target) != "/a?b" || string(host) != "x:80" {
			t.Errorf("%q %q %q", m, target, host)
		}
		if h.Length != 12 || h.Chunked || !h.Upgrade || !h.Continue || !h.KeepAlive() || h.Minor != 1 ||
			len(h.Fields) != 6 {
			t.Errorf("%+v", h)
		}
		if v := h.Fields[5].Value.Of(raw); string(v) != "v" {
			t.Errorf("the last value is %q", v)
		}
	}
}

func TestHeadsThatAreRefused(t *testing.T) {
	for raw, status := range map[string]int{
		"GET / HTTP/1.1\nHost: a\r\n\r\n":                                                      400,
		"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n":                                         400,
		"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n":                                      400,
		"GET / HTTP/1.1\r\nHost : a\r\n\r\n":                                                   400,
		"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n":          400,
		"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n": 400,
		"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n":            400,
		"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1_0\r\n\r\n":                             400,
		"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n":            501,
		"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n":                                 400,
		"GET / HTTP/1.1\r\n\r\n":                                                               400,
		"GET / HTTP/2.0\r\nHost: a\r\n\r\n":                                                    505,
		"GET / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n":                                     417,
		"GET / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\nExpect: 100-continue\r\n\r\n":             417,
		"GET /" + strings.Repeat("x", maxTest) + " HTTP/1.1\r\nHost: a\r\n\r\n":                431,
		"GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("a:\r\n", MaxFields) + "\r\n":         431,
	} {
		for step := 1; step < 60; step += 7 {
			var e *Error
			if _, n, err := parse([]byte(raw), step); n != 0 || !errors.As(err, &e) || e.Status != status {
				t.Errorf("%.80q in steps of %d: %d, %v; want status %d", raw, step, n, err, status)
			}
		}
	}
}

// body runs Chunks over bytes that arrive in steps.
func body(b []byte, step int) (out []byte, used int, done bool, err error) {
	var c Chunks
	for end := min(step, len(b)); ; end = min(end+step, len(b)) {
		for {
			skip, data, err := c.Next(b[used:end])
			used += skip
			if err != nil {
				return out, used, false, err
			}
			if data == 0 {
				break
			}
			out = append(out, b[used:used+data]...)
			c.Took(data)
			used += data
		}
		if c.Done() || end == len(b) {
			return out, used, c.Done(), nil
		}
	}
}

func TestChunks(t *testing.T) {
	raw := []byte("5;ext=\"1\"\r\nhello\r\n00A\r\n0123456789\r\n0\r\nSum: 1\r\n\r\nrest")
	for step := 1; step <= len(raw); step++ {
		out, used, done, err := body(raw, step)
		if string(out) != "hello0123456789" || !done || err != nil || string(raw[used:]) != "rest" {
			t.Fatalf("step %d: %q, %q is left, %v, %v", step, out, raw[used:], done, err)
		}
	}
	for _, raw := range []string{
		"5\nhello\r\n", "5 \r\nhello\r\n", "x\r\n", "\r\n", "-5\r\n", "5\r\nhelloX\r\n", "FFFFFFFFFFFFFFFFF\r\n",
		"8000000000000000\r\n", "0\r\nbad name: x\r\n\r\n",
		"0\r\nx: y\n\r\n", "5;a\x00\r\nhello\r\n", "0x5\r\nhello\r\n", strings.Repeat("0", 17) + "\r\n",
		"1;" + strings.Repeat("x", maxSizeLine) + "\r\n",
	} {
		for _, step := range []int{1, 3, len(raw)} {
			if out, _, done, err := body([]byte(raw), step); err == nil || done {
				t.Errorf("%.40q in steps of %d: %q, %v, %v; want an error", raw, step, out, done, err)
			}
		}
	}
}

// FuzzHead: how the bytes arrive makes no difference, and nothing is read beyond what the parser
// said it used.
func FuzzHead(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"), 3)
	f.Add([]byte("POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc"), 1)
	f.Fuzz(func(t *testing.T, b []byte, step int) {
		step = 1 + step&63
		h1, n1, err1 := parse(b, len(b)+1)
		h2, n2, err2 := parse(b, step)
		if n1 != n2 || (err1 == nil) != (err2 == nil) && len(b) <= maxTest {
			t.Fatalf("in one piece %d, %v; in steps of %d %d, %v", n1, err1, step, n2, err2)
		}
		if n1 == 0 {
			return
		}
		if h1.Length != h2.Length || len(h1.Fields) != len(h2.Fields) || h1.Close != h2.Close {
			t.Fatalf("%+v and %+v", h1, h2)
		}
		if !bytes.HasSuffix(b[:n1], []byte("\r\n\r\n")) || bytes.Count(b[:n1], []byte("\n")) != len(h1.Fields)+2 {
			t.Fatalf("the head ends at %d of %q", n1, b)
		}
		o1, u1, d1, e1 := body(b[n1:], len(b)+1)
		o2, u2, d2, e2 := body(b[n1:], step)
		if !bytes.Equal(o1, o2) || d1 != d2 || (e1 == nil) != (e2 == nil) || d1 && u1 != u2 {
			t.Fatalf("body: %q %d %v %v, in steps %q %d %v %v", o1, u1, d1, e1, o2, u2, d2, e2)
		}
	})
}

// TestChunksHaveLittleFraming: framing is free as far as it may come from an honest sender, and not
// beyond.
func TestChunksHaveLittleFraming(t *testing.T) {
	for _, c := range []struct {
		chunk string
		fair  bool
	}{
		{"1\r\nx\r\n", true},
		{"1;a=0123456789a\r\nx\r\n", true}, // 17 bytes of framing, of 18
		{"1;a=0123456789abc\r\nx\r\n", false},
		{"1;a=" + strings.Repeat("b", 4000) + "\r\nx\r\n", false},
		{"1000;a=" + strings.Repeat("b", 4000) + "\r\n" + strings.Repeat("x", 0x1000) + "\r\n", true},
	} {
		_, _, done, err := body([]byte(strings.Repeat(c.chunk, 30_000)+"0\r\n\r\n"), 1<<30)
		if c.fair && (err != nil || !done) || !c.fair && !errors.Is(err, errChunk) {
			t.Errorf("chunks like %.30q: done %v, %v", c.chunk, done, err)
		}
	}
}
