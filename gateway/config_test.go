package gateway

import (
	"strings"
	"testing"
)

const goodConfig = `
log: {dir: ./data, sync: batch, keep: {size: 10GB, age: 720h}}
api: {listen: 127.0.0.1:7411}
read: {strategy: ring, mode: throughput, tick: 2ms}
sources:
  - id: line-1
    serial: {port: /dev/ttyUSB0, baud: 115200, parity: even, rs485: {rts_on_send: true, delay_after: 1ms}}
    frame: tally128
    overflow: block
  - {id: gps, tcp: {dial: "127.0.0.1:9000"}, frame: {kind: line, max: 200}}
  - {id: plc, udp: {listen: ":9001"}, frame: {kind: length, prefix: 4, endian: little, check: modbus}, overflow: drop-oldest, buffer: 1MiB}
`

func TestGoodConfig(t *testing.T) {
	c, err := Parse([]byte(goodConfig))
	if err != nil {
		t.Fatal(err)
	}
	if c.Log.Keep.Size != 10_000_000_000 || c.Sources[0].Serial.RS485.DelayAfter != 1_000_000 ||
		c.Sources[0].Frame.Kind != "tally128" || c.Sources[1].Frame.Max != 200 || c.Sources[2].Buffer != 1<<20 {
		t.Errorf("read as %+v", c)
	}
}

// Every kind of wrong configuration gives one line that says where and what.
func TestWrongConfigs(t *testing.T) {
	source := func(s string) string { return "sources: [{id: a, " + s + "}]" }
	for _, c := range []struct{ yaml, want string }{
		{"sorces: []", `line 1: unknown key "sorces"; did you mean "sources"?`},
		{"log:\n  dri: x", `line 2: unknown key "dri"; did you mean "dir"?`},
		{"sources:\n  - id: a\n    serial: {port: x, buad: 9600}\n    frame: raw", `line 3: unknown key "buad"; did you mean "baud"?`},
		{"log: [1", "line 1"},
		{"log: {sync: sometimes}", `sync "sometimes": want always, batch, interval or never`},
		{"log: {on_full: panic}", "on_full"},
		{"log: {engine: steam}", "engine"},
		{"server: {engine: steam}", "want auto, uring, epoll or std"},
		{"server: {loops: 1000}", "loops"},
		{"log: {linked: true}", "engine: uring"},
		{"log: {segment: 3 bananas}", "want a number with KiB"},
		{"log: {segment: 1KiB}", "want 1MiB to 16GiB"},
		{"log: {keep: {size: 1MiB}, segment: 64MiB}", "at least three segments"},
		{"log: {delay: 2h}", "delay"},
		{"log: {delay: fast}", `invalid duration "fast"`},
		{"api: {listen: 7411}", "want host:port"},
		{"api: {listen: '127.0.0.1:99999'}", "want 0 to 65535"},
		{"api: {listen: '0.0.0.0:7411'}", "open to the network: set token and tls"},
		{"api: {listen: '0.0.0.0:7411', token: abcdefghijklmnopqrst}", "open to the network"},
		{"api: {listen: '127.0.0.1:7411', token: short}", "at least 16"},
		{"api: {listen: '127.0.0.1:7411', tls: {cert: x}}", "both cert and key"},
		{"read: {strategy: magic}", "want ring, blocking or polling"},
		{"read: {mode: turbo}", "want latency, throughput or hybrid"},
		{"read: {tick: 2h}", "tick"},
		{"sources: [{serial: {port: x}, frame: raw}]", "id"},
		{"sources: [{id: a b, serial: {port: x}, frame: raw}]", "want letters"},
		{"sources: [{id: a, serial: {port: x}, frame: raw}, {id: a, udp: {listen: ':1'}, frame: raw}]", "there twice"},
		{source("frame: raw"), "exactly one of serial, tcp and udp"},
		{source("serial: {port: x}, udp: {listen: ':1'}, frame: raw"), "exactly one"},
		{source("serial: {baud: 9600}, frame: raw"), "port is missing"},
		{source("serial: {port: x, baud: 1}, frame: raw"), "baud 1"},
		{source("serial: {port: x, baud: fast}, frame: raw"), "line 1"},
		{source("serial: {port: x, parity: maybe}, frame: raw"), "parity"},
		{source("serial: {port: x}"), "frame is missing"},
		{source("serial: {port: x}, frame: tally129"), "want one of tally128"},
		{source("serial: {port: x}, frame: {kind: line, max: 1000000}"), "want 8 to"},
		{source("serial: {port: x}, frame: {kind: cobs, check: md5}"), "check"},
		{source("serial: {port: x}, frame: {kind: length, endian: middle}"), "endian"},
		{source("serial: {port: x}, frame: raw, overflow: explode"), "overflow"},
		{source("serial: {port: x}, frame: raw, buffer: 1KiB"), "buffer"},
		{source("tcp: {listen: ':1', dial: ':2'}, frame: raw"), "either listen or dial"},
		{source("tcp: {dial: nowhere}, frame: raw"), "want host:port"},
		{source("udp: {dial: ':2'}, frame: raw"), "want listen"},
		{"- 1\n- 2", "line"},
		{"\x00\x01", ""},
	} {
		_, err := Parse([]byte(c.yaml))
		switch {
		case err == nil:
			t.Errorf("%q is accepted", c.yaml)
		case !strings.Contains(err.Error(), c.want):
			t.Errorf("%q gives %q, want %q in it", c.yaml, err, c.want)
		case strings.Contains(err.Error(), "\n"):
			t.Errorf("%q gives more than a line: %q", c.yaml, err)
		}
	}
}

func FuzzConfig(f *testing.F) {
	f.Add(goodConfig)
	f.Add("sources: [{id: a, frame: {kind: {}}}]")
	f.Add("log: &a {dir: *a}")
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := Parse([]byte(text)); err == nil {
			if err := c.Check(); err != nil {
				t.Errorf("what Parse accepts, Check refuses: %v", err)
			}
		}
	})
}
