package h1

import (
	"fmt"
	"testing"
)

// TestDecide is the table of what decides about the framing of an answer. Each case says what
// differs from a GET in HTTP/1.1 on a connection that stays, answered by 200 with a body of unknown
// length.
func TestDecide(t *testing.T) {
	type change func(*facts)
	with := func(changes ...change) facts {
		f := facts{minor: 1, keepAlive: true, status: 200, length: -1, known: -1}
		for _, c := range changes {
			c(&f)
		}
		return f
	}
	head := func(f *facts) { f.head = true }
	old := func(f *facts) { f.minor = 0 }
	once := func(f *facts) { f.keepAlive = false }
	leaving := func(f *facts) { f.leaving = true }
	status := func(n int) change { return func(f *facts) { f.status = n } }
	length := func(n int64) change { return func(f *facts) { f.length, f.lengthKey = n, true } }
	noLength := func(f *facts) { f.lengthKey = true }
	known := func(n int64) change { return func(f *facts) { f.known = n } }
	coding := func(v string) change { return func(f *facts) { f.coding = v } }
	connection := func(v ...string) change { return func(f *facts) { f.connection = v } }
	trailers := func(f *facts) { f.trailers = true }

	for _, c := range []struct {
		name string
		f    facts
		want string // body, length, chunked, coding, connection, close
	}{
		{"unknown length", with(), `body chunked keep []`},
		{"known length", with(known(5)), `body length=5 keep []`},
		{"known to be empty", with(known(0)), `body length=0 keep []`},
		{"declared length", with(length(7)), `body length=7 keep []`},
		{"length taken away", with(noLength, known(5)), `body chunked keep []`},
		{"trailers", with(trailers, known(5)), `body chunked keep []`},
		{"HEAD", with(head), `keep []`},
		{"HEAD with a body that the handler wrote", with(head, known(5)), `length=5 keep []`},
		{"HEAD without", with(head, known(0)), `keep []`},
		{"HEAD, declared", with(head, length(9)), `length=9 keep []`},
		{"204", with(status(204), length(3), coding("chunked")), `keep []`},
		{"304", with(status(304), known(0)), `keep []`},
		{"101", with(status(101), connection("Upgrade")), `keep [Upgrade]`},
		{"101 on a connection that is to end", with(status(101), once, connection("Upgrade")), `close [Upgrade]`},
		{"chunked, said by the handler", with(coding("chunked")), `body chunked keep []`},
		{"gzip, said by the handler", with(coding("gzip")), `body chunked coding=gzip keep []`},
		{"identity", with(coding("identity")), `body close [close]`},
		{"a length and a coding", with(coding("gzip"), length(4)), `body chunked coding=gzip conflict keep []`},
		{"a length and identity", with(coding("identity"), length(4)), `body length=4 keep []`},
		{"the client closes", with(once, known(1)), `body length=1 close [close]`},
		{"the server leaves", with(leaving, known(1)), `body length=1 close [close]`},
		{"the handler closes", with(connection("close"), known(1)), `body length=1 close [close]`},
		{"the handler says something else", with(connection("x"), known(1)), `body length=1 keep [x]`},
		{"… and the server leaves", with(connection("x"), leaving, known(1)), `body length=1 close [close]`},
		{"1.0 keeps what has a length", with(old, known(1)), `body length=1 keep [keep-alive]`},
		{"1.0, unknown length", with(old), `body close []`},
		{"1.0 that does not ask", with(old, once, known(1)), `body length=1 close []`},
		{"1.0, HEAD", with(old, head), `keep [keep-alive]`},
		{"1.0, chunked by the handler", with(old, coding("chunked")), `body close []`},
		{"1.0, the handler's Connection", with(old, known(1), connection("x")), `body length=1 keep [x]`},
	} {
		p := decide(c.f)
		got := ""
		for _, one := range []struct {
			text string
			is   bool
		}{
			{"body ", p.body},
			{fmt.Sprintf("length=%d ", p.length), p.length >= 0},
			{"chunked ", p.chunked},
			{"coding=" + p.coding + " ", p.coding != ""},
			{"conflict ", p.conflict},
			{"close ", p.close},
			{"keep ", !p.close},
		} {
			if one.is {
				got += one.text
			}
		}
		if got += fmt.Sprint(p.connection); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestLead: one empty line before a request is nothing, and after a POST a few line ends of any
// kind; it does not matter how they come.
func TestLead(t *testing.T) {
	for _, c := range []struct {
		in        string
		afterPost bool
		want      string
	}{
		{"GET", false, "GET"},
		{"\r\nGET", false, "GET"},
		{"\r\n\r\nGET", false, "\r\nGET"},
		{"\nGET", false, "\nGET"},
		{"\rGET", false, "\rGET"},
		{"\r\n\r\nGET", true, "GET"},
		{"\n\r\nGET", true, "GET"},
		{"\r\n\r\n\r\nGET", true, "\r\nGET"},
	} {
		for cut := range len(c.in) + 1 {
			l := lead{afterPost: c.afterPost}
			b := c.in[:cut]
			n, wait := l.skip([]byte(b))
			b = b[n:] + c.in[cut:]
			if cut < len(c.in) && (wait || len(b) == len(c.in)-cut) {
				n, _ = l.skip([]byte(b))
				b = b[n:]
			}
			if b != c.want {
				t.Errorf("%q cut at %d, after a POST %v: %q is left, want %q", c.in, cut, c.afterPost, b, c.want)
			}
		}
	}
}
