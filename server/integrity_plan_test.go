package server_test

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"strconv"
	"strings"
)

// The integrity tests ask random requests, of which each has an answer that only this request of
// this connection can have: all content is a piece of one random block at a place that follows from
// both, and the answer ends with the hash of the request's body.

// block is where all content comes from. Its length is a prime, so that pieces which are moved by a
// power of two do not fit.
var block = newStream(99).block

var hashSeed = maphash.MakeSeed()

// piece is n bytes of content that belong to a number; it appends them to b.
func piece(b []byte, of uint64, n int) []byte {
	for at := placeOf(of); n > 0; at = 0 {
		k := min(n, len(block)-at)
		b = append(b, block[at:at+k]...)
		n -= k
	}
	return b
}

// placeOf mixes a number, and gives the place of its content.
func placeOf(x uint64) int {
	x ^= x >> 31
	x *= 0x9e3779b97f4a7c15
	x ^= x >> 29
	return int(x % uint64(len(block)))
}

// ask is one request, and what its handler is to do. The target says it all: /op/size/id/seq.
type ask struct {
	method  string
	style   byte // of the answer
	reads   byte // how the handler treats the body
	end     byte // how it ends
	size    int  // of the answer's content
	id      uint64
	seq     int
	body    int // bytes; -1: none
	chunked bool
	expect  byte // 0: no; 'w': the client waits for 100-continue; 'i': it does not
	close   bool // Connection: close
	cut     int  // bytes of the body that are never sent
}

// Styles, ways to treat a body, and ends.
const (
	byLength    = 'l' // one Write with a Content-Length
	inPieces    = 'p' // several, with a Content-Length
	automatic   = 'a' // without
	chunks      = 'c' // much without
	flushed     = 'f' // flushed pieces
	copied      = 'r' // by io.Copy
	noContent   = 'n' // 204
	ownBuffer   = 's' // Lean: SetBuffer of the handler's memory
	ownAndMore  = 'm' // … and Write after it
	serverBuf   = 'b' // Lean: Buffer and SetBuffer
	readFirst   = 'r'
	readLate    = 'd' // after half the answer, which was flushed
	readPart    = 'o'
	unread      = 'u'
	normal      = '-'
	panicFirst  = 'p'
	panicLater  = 'q' // after a flushed part
	exitFirst   = 'g'
	exitLater   = 'G'
	hijack      = 'h'
	serverClose = 'k'
	deadline    = 't' // of reading, which passes
)

// hashText stands at the end of an answer: the hash of the body, or what became of it.
const (
	hashSize  = 16
	noHash    = "----------------"
	cutHash   = "!!!!!!!!!!!!!!!!"
	tooLate   = "????????????????"
	otherwise = "EEEEEEEEEEEEEEEE"
)

func hashText(sum uint64) string {
	s := strconv.FormatUint(sum, 16)
	return strings.Repeat("0", hashSize-len(s)) + s
}

func (a *ask) name() string { return strconv.FormatUint(a.id, 36) + "-" + strconv.Itoa(a.seq) }

// of is the number that the content of an answer belongs to.
func (a *ask) of() uint64 { return a.id*1_000_003 + uint64(a.seq) }

// parse reads an ask back from a target.
func (a *ask) parse(target string) error {
	parts := strings.Split(target, "/")
	if len(parts) != 4 || len(parts[1]) != 3 {
		return fmt.Errorf("target %q", target)
	}
	op := parts[1]
	a.style, a.reads, a.end = op[0], op[1], op[2]
	size, err := strconv.Atoi(parts[2])
	if err != nil {
		return err
	}
	id, seq, _ := strings.Cut(parts[3], "-")
	a.size = size
	if a.id, err = strconv.ParseUint(id, 36, 64); err != nil {
		return err
	}
	a.seq, err = strconv.Atoi(seq)
	return err
}

// content appends what the requests's body is.
func (a *ask) content(b []byte) []byte { return piece(b, ^a.of(), max(a.body, 0)) }

// raw appends the request; headAt is where its body begins.
func (a *ask) raw(b []byte, rng *rand.Rand) (out []byte, bodyAt int) {
	b = append(b, a.method...)
	b = append(b, ' ', '/', a.style, a.reads, a.end, '/')
	b = strconv.AppendInt(b, int64(a.size), 10)
	b = append(b, '/')
	b = append(b, a.name()...)
	b = append(b, " HTTP/1.1\r\nHost: a\r\n"...)
	if a.close {
		b = append(b, "Connection: close\r\n"...)
	}
	if a.end == hijack {
		b = append(b, "Connection: Upgrade\r\nUpgrade: echo\r\n"...)
	}
	if a.expect != 0 {
		b = append(b, "Expect: 100-continue\r\n"...)
	}
	switch {
	case a.body < 0:
	case a.chunked:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	default:
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, int64(a.body), 10)
		b = append(b, "\r\n"...)
	}
	b = append(b, "\r\n"...)
	bodyAt = len(b)
	switch {
	case a.body < 0:
	case a.chunked:
		b = a.rawChunks(b, rng)
	default:
		b = a.content(b)
	}
	return b[:len(b)-min(a.cut, len(b)-bodyAt)], bodyAt
}

func (a *ask) rawChunks(b []byte, rng *rand.Rand) []byte {
	whole := a.content(nil)
	for len(whole) > 0 {
		n := min(len(whole), 1+rng.IntN(1+rng.IntN(5000)))
		b = strconv.AppendInt(b, int64(n), 16)
		b = append(b, "\r\n"...)
		b = append(b, whole[:n]...)
		b = append(b, "\r\n"...)
		whole = whole[n:]
	}
	return append(b, "0\r\n\r\n"...)
}

// want appends the body of the answer: a name, content, and the hash.
func (a *ask) want(b []byte) []byte {
	switch a.style {
	case noContent:
		return b
	case ownBuffer, ownAndMore:
		at := placeOf(a.of()) % (len(block) - a.size)
		b = append(b, block[at:at+a.size]...)
		if a.style == ownBuffer {
			return b
		}
		return append(b, a.hash()...)
	}
	b = append(b, a.name()...)
	b = append(b, '\n')
	b = piece(b, a.of(), a.size)
	return append(b, a.hash()...)
}

// hash is the one that the answer must have.
func (a *ask) hash() string {
	switch {
	case a.end == deadline:
		return tooLate
	case a.reads == unread || a.reads == readPart:
		return noHash
	case a.cut > 0:
		return cutHash
	}
	return hashText(maphash.Bytes(hashSeed, a.content(nil)))
}

// last reports whether the connection is over after it.
func (a *ask) last() bool {
	return a.close || a.end != normal || a.cut > 0 || a.expect != 0 && a.reads != readFirst && a.reads != readLate
}

// dies reports whether the handler ends before its answer is whole.
func (a *ask) dies() bool { return strings.IndexByte("pqgG", a.end) >= 0 }

func (a *ask) String() string {
	return fmt.Sprintf("%s %c%c%c size=%d body=%d chunked=%v expect=%q close=%v cut=%d", a.method, a.style, a.reads,
		a.end, a.size, a.body, a.chunked,
		a.expect, a.close, a.cut)
}

// abuses are the ends of connections.
var abuses = []string{
	"leave", "close", "serverclose", "half", "reset", "cuthead", "cutbody", "panic", "panic-later", "goexit",
	"goexit-later", "hijack",
	"unwanted", "deadline",
}

// leanAbuses are those that a LeanHandler can be part of.
var leanAbuses = []string{"leave", "close", "serverclose", "half", "reset", "cuthead", "panic", "goexit"}

// script is what a client does on one connection.
type script struct {
	id    uint64
	abuse string
	asks  []ask
	slow  bool // to read
	split bool // writes in pieces
}

// newScript makes up a connection.
func newScript(rng *rand.Rand, abuse string, lean, own, std bool) *script {
	s := &script{id: rng.Uint64() >> 12, abuse: abuse, slow: rng.IntN(10) == 0, split: rng.IntN(4) == 0}
	n := 1 + rng.IntN(1+rng.IntN(150))
	if s.slow {
		n = min(n, 12)
	}
	for i := range n {
		a := s.ask(rng, i, lean, own)
		if s.slow && rng.IntN(3) == 0 {
			a.size = rng.IntN(900_000) // more than the sockets hold
		}
		s.asks = append(s.asks, a)
	}
	last := &s.asks[n-1]
	end := func(e byte) { last.end, last.expect = e, 0 }
	withBody := func(reads byte) {
		last.method, last.reads, last.body, last.expect = "POST", reads, 1+rng.IntN(20_000), 0
	}
	switch abuse {
	case "close":
		last.close = true
	case "serverclose":
		end(serverClose)
	case "cutbody":
		withBody(readFirst)
		last.cut = 1 + rng.IntN(last.body)
		last.chunked = false
	case "panic":
		end(panicFirst)
	case "panic-later":
		end(panicLater)
	case "goexit":
		end(exitFirst)
	case "goexit-later":
		end(exitLater)
	case "hijack":
		end(hijack)
		last.method, last.body, last.chunked = "GET", -1, false
	case "unwanted":
		withBody(unread)
		last.expect = "wi"[rng.IntN(2)]
	case "deadline":
		withBody(readFirst)
		end(deadline)
		last.chunked, last.cut = false, 1
	}
	if std && last.last() && last.expect == 0 {
		last.reads = readFirst // net/http closes with a reset where a body is unread, which may take the answer away
	}
	if last.end == panicLater || last.end == exitLater {
		last.method, last.style = "GET", "fcp"[rng.IntN(3)]
		last.body, last.size = -1, 5000+rng.IntN(20_000)
		last.chunked = false
	}
	return s
}

func (s *script) ask(rng *rand.Rand, seq int, lean, own bool) ask {
	a := ask{
		method: "GET", id: s.id, seq: seq, body: -1, reads: readFirst, end: normal,
		size: rng.IntN(1 + rng.IntN(2000)),
	}
	styles := "lpacfrn"
	if lean {
		styles = "lpb"
		if own {
			styles = "lpbsm"
		}
	}
	a.style = styles[rng.IntN(len(styles))]
	switch rng.IntN(100) {
	case 0:
		a.size = rng.IntN(900_000)
	case 1, 2, 3:
		a.size = rng.IntN(60_000)
	}
	switch rng.IntN(10) {
	case 0:
		a.method = "HEAD"
	case 1, 2, 3, 4:
		a.method = "POST"
		a.body = rng.IntN(1 + rng.IntN(3000))
		if rng.IntN(20) == 0 {
			a.body = rng.IntN(200_000)
		}
		a.chunked = rng.IntN(2) == 0
		if !lean {
			a.reads = "rrrduo"[rng.IntN(6)]
		}
		if a.style == noContent && a.reads == readLate {
			a.reads = readFirst // there is no half of this answer
		}
		if rng.IntN(8) == 0 && a.body > 0 && (a.reads == readFirst) {
			a.expect = "wi"[rng.IntN(2)]
		}
	}
	return a
}

func (s *script) String() string {
	return fmt.Sprintf("%d requests and %s (slow=%v, split=%v)", len(s.asks), s.abuse, s.slow, s.split)
}
