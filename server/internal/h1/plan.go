package h1

import (
	"net/http"

	"golang.org/x/net/http/httpguts"
)

// facts are what decides how an answer is framed and what becomes of the connection after it.
type facts struct {
	// The request.
	head      bool // its method is HEAD
	minor     int  // HTTP/1.minor
	keepAlive bool // the client expects the connection to stay
	leaving   bool // the server keeps no connection, or cannot keep this one

	// The answer.
	status     int
	length     int64    // Content-Length as the handler set it; -1: it did not
	lengthKey  bool     // the header has Content-Length, with or without a good value: none is made
	known      int64    // bytes of the whole body; -1: there may be more
	coding     string   // Transfer-Encoding as the handler set it
	connection []string // Connection as the handler set it
	trailers   bool     // there may be trailer fields
}

// plan says how an answer is framed and what becomes of the connection.
type plan struct {
	body       bool     // body bytes are sent
	length     int64    // Content-Length; -1: there is none
	chunked    bool     // the body is sent in chunks
	coding     string   // what goes out as Transfer-Encoding before chunked
	connection []string // Connection
	close      bool     // the connection is closed after the answer
	conflict   bool     // the handler set Content-Length and Transfer-Encoding: the length is dropped
}

// Values of the field Connection.
var (
	sayClose = []string{"close"}
	sayKeep  = []string{"keep-alive"}
)

// bodyAllowed reports whether an answer with that status may have a body (RFC 9110, section 6.4.1).
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// decide is the plan for an answer: net/http's rules.
func decide(f facts) plan {
	allowed := bodyAllowed(f.status)
	p := plan{body: allowed && !f.head, length: f.length, connection: f.connection}
	if f.known >= 0 && !f.lengthKey && !f.trailers && f.coding == "" && allowed && (!f.head || f.known > 0) {
		p.length = f.known
	}
	p.close = f.leaving || !f.keepAlive || len(f.connection) > 0 && f.connection[0] == "close"
	if f.minor == 0 {
		if p.length < 0 && p.body { // only the connection's end shows the body's
			p.close = true
		} else if f.keepAlive && len(f.connection) == 0 {
			p.connection = sayKeep
		}
	}
	if allowed && p.length >= 0 && f.coding != "" && f.coding != "identity" {
		p.conflict, p.length = true, -1
	}
	switch {
	case !p.body, p.length >= 0:
	case f.minor == 0, f.coding == "identity":
		p.close = true
	default:
		p.chunked = true
		if f.coding != "chunked" {
			p.coding = f.coding
		}
	}
	if !allowed {
		p.length = -1
	}
	if p.close && f.status != http.StatusSwitchingProtocols &&
		!(len(f.connection) > 0 && httpguts.HeaderValuesContainsToken(f.connection[:1], "close")) {
		p.connection = nil
		if f.minor > 0 {
			p.connection = sayClose
		}
	}
	return p
}
