package config

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
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

// goType is what a message must never show.
var goType = regexp.MustCompile(`\b(u?int(8|16|32|64)?|float64|bool|struct|config\.[A-Z]\w*|map\[)\b|Go `)

// TestAnotherFile: of a file that is no configuration a few words are shown, and not all of it.
func TestAnotherFile(t *testing.T) {
	long, groups := strings.Repeat("long ", 800), ""
	for i := range 1000 {
		groups += fmt.Sprintf("group-%d:x:%d:\n", i, i)
	}
	for name, c := range map[string]struct{ yaml, want string }{
		"text":    {long, `want a mapping, not "long `},
		"a key":   {long + ": 1", `unknown key "long `},
		"a value": {"log: {sync: " + long + "}", "want always, batch, interval or never"},
		"a name":  {"sources: [{id: " + long + ", frame: line}]", "long"},
		"an ID":   {"log: *" + strings.ReplaceAll(long, " ", "-"), "log: *long-"},
		"keys":    {groups, "and 980 more keys are unknown: is this a configuration?"},
	} {
		_, err := Parse([]byte(c.yaml))
		if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 3000 {
			t.Errorf("%s: %d bytes, %.200v", name, len(fmt.Sprint(err)), err)
		}
		var all Problems
		if errors.As(err, &all); !slices.IsSortedFunc(all, func(a, b Problem) int { return a.Line - b.Line }) {
			t.Errorf("%s: not in the order of the file", name)
		}
		for _, p := range all {
			if len(p.Text) > maxText+len("…") {
				t.Errorf("%s: %d bytes of %.100s", name, len(p.Text), p.Text)
			}
		}
	}
}

// Every kind of wrong configuration gives one line that says where and what.
func TestWrongConfigs(t *testing.T) {
	source := func(s string) string { return "sources: [{id: a, " + s + "}]" }
	for _, c := range []struct{ yaml, want string }{
		{"sorces: []", `line 1: unknown key "sorces"; did you mean "sources"?`},
		{"log:\n  dri: x", `line 2: log: unknown key "dri"; did you mean "dir"?`},
		{
			"sources:\n  - id: a\n    serial: {port: x, buad: 9600}\n    frame: raw",
			`line 3: sources[0].serial: unknown key "buad"; did you mean "baud"?`,
		},
		{
			source("udp: {listen: ':9000'}, frame: raw, peers: all"),
			`sources[0]: unknown key "peers" here; it belongs in tcp`,
		},
		{source("serial: {port: x, peers: all}, frame: raw"), `unknown key "peers" here; it belongs in sources[].tcp`},
		{source("frame: raw, peer: all"), `unknown key "peer"; did you mean "peers", in tcp?`},
		{
			"listen: off",
			`line 1: unknown key "listen" here; it belongs in api, forward[], sources[].tcp or sources[].udp`,
		},
		{"log: {sources: []}", `log: unknown key "sources" here; it belongs at the top level`},
		{"log: [1", "line 1"},
		{"log: {sync: sometimes}", `log.sync: "sometimes": want always, batch, interval or never`},
		{"log: {on_full: panic}", "on_full"},
		{"log: {engine: steam}", "engine"},
		{"server: {engine: steam}", "want auto, uring, epoll or std"},
		{"server: {loops: 1000}", "loops"},
		{"log: {linked: true}", "engine: uring"},
		{"log: {sign: k, prove: off}", "goes with prove: on"},
		{"forward: [{to: nats, proof: true}]", "there are no checkpoints without log.prove: on, or log.sign"},
		{"log: {prove: on}\nforward: [{to: nats, proof: true}]\nsources: [{id: proof, udp: {listen: ':1'}, frame: raw}]", `checkpoints have the subject of the source "proof"`},
		{"log: {segment: 3 bananas}", "want a number with KiB"},
		{"log: {segment: 1KiB}", "want 1MiB to 16GiB"},
		{"log: {keep: {size: 1MiB}, segment: 64MiB}", "at least three segments"},
		{"log: {delay: 2h}", "delay"},
		{"log: {delay: fast}", `line 1: log.delay: "fast": want a time in ns, us, ms, s, m or h, as 50ms`},
		{"log: {keep: {age: 30d}}", `line 1: log.keep.age: "30d": want a time in ns, us, ms, s, m or h`},
		{"log: {delay: 5}", `"5": want a time`},
		{"log: {keep: {size: 64MiB}}", "64MiB: want at least three segments, which are 192MiB"},
		{"log: {keep: {age: -1h}}", "want at least 0s"},
		{"log: {records: many}", `log.records: "many": want a whole number`},
		{"log: {linked: perhaps}", `"perhaps": want true or false`},
		{"log: 5", `log: want a mapping, not "5"`},
		{"log:\n  dir: [a]", "line 2: log.dir: want text, not a list"},
		{"sources: {id: a}", "sources: want a list, not a mapping"},
		{"", "the file is empty"},
		{"# nothing but this\n", "the file is empty"},
		{"---\n", "the file is empty"},
		{
			"log:\n  dir: " + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000),
			"line 2: brackets, braces or dashes within each other, 100 deep",
		},
		{"log: " + strings.Repeat("{\na: ", 101), "line 101: brackets"},
		{"sources:\n" + strings.Repeat("- ", 100_000), "line 2: brackets"},
		{"log: {dir: a}\n---\nlog: {dir: b}", "line 3: a second document begins: want one"},
		{"log: {dir: \"a\\u0000b\"}", `log.dir: "a\x00b": want no control characters`},
		{"log: {dir: a}\nlog: {dir: b}", "line 2: log: this is here twice, first on line 1"},
		{"read:\n  tick: 1ms\n  tick: 2ms", "line 3: read.tick: this is here twice, first on line 2"},
		{"log: *x", "want an anchor &x before it"},
		{"log: &x {dir: *x}", "want an anchor &x before it"},
		{"api: {listen: 7411}", "want host:port"},
		{"api: {listen: '127.0.0.1:99999'}", "want 0 to 65535"},
		{"api: {listen: '0.0.0.0:7411'}", "open to the network: set token and tls"},
		{"api: {listen: '0.0.0.0:7411', token: abcdefghijklmnopqrst}", "open to the network"},
		{"api: {listen: '127.0.0.1:7411', token: short}", "api.token: want at least 16"},
		{"api: {listen: '127.0.0.1:7411', tls: {cert: x}}", "both cert and key"},
		{"read: {strategy: magic}", "want ring, pipeline, blocking or polling"},
		{"read: {mode: turbo}", "want latency, throughput or hybrid"},
		{"read: {tick: 2h}", "tick"},
		{"notify: {webhook: example.org}", `notify.webhook: want a URL`},
		{"notify: {webhook: 'ftp://example.org'}", "want a URL"},
		{"notify: {command: mail}", "notify.command"},
		{"notify: {command: ['', x]}", "notify.command: its first word is the program"},
		{"notify: {timeout: 1ms}", "notify.timeout: 1ms: want 100ms to 5m"},
		{"notify: {queue: -1}", "notify.queue: -1: want 1 to 100000"},
		{"sources: [{serial: {port: x}, frame: raw}]", "id"},
		{"sources: [{id: a b, serial: {port: x}, frame: raw}]", "want letters"},
		{"sources: [{id: a, serial: {port: x}, frame: raw}, {id: a, udp: {listen: ':1'}, frame: raw}]", "there twice"},
		{source("frame: raw"), "exactly one of serial, tcp and udp"},
		{source("serial: {port: x}, udp: {listen: ':1'}, frame: raw"), "exactly one"},
		{source("serial: {baud: 9600}, frame: raw"), "port: is missing"},
		{source("serial: {port: x, baud: 1}, frame: raw"), "sources[0].serial.baud: 1: want 50 to 20000000"},
		{
			source("serial: {port: x, baud: fast}, frame: raw"),
			`line 1: sources[0].serial.baud: "fast": want a whole number`,
		},
		{source("serial: {port: x, parity: maybe}, frame: raw"), "parity"},
		{source("serial: {port: x}"), "sources[0].frame: is missing"},
		{source("serial: {port: x}, frame: tally129"), "want tally128, modbus"},
		{source("serial: {port: x}, frame: {kind: line, max: 1000000}"), "want 8 to"},
		{source("serial: {port: x}, frame: {kind: cobs, check: md5}"), "check"},
		{source("serial: {port: x}, frame: {kind: length, endian: middle}"), "endian"},
		{source("serial: {port: x}, frame: raw, overflow: explode"), "overflow"},
		{source("serial: {port: x}, frame: raw, buffer: 1KiB"), "buffer"},
		{source("serial: {port: x}, frame: raw, spill: {max: 1GiB}"), "sources[0].spill: goes with overflow: spill"},
		{
			source("serial: {port: x}, frame: raw, overflow: spill, spill: {max: 1MiB}"),
			"line 1: sources[0].spill.max: 1MiB: want 4MiB to 16TiB",
		},
		{
			source("serial: {port: x}, frame: raw, overflow: spill, spill: {max: much}"),
			`line 1: sources[0].spill.max: "much": want a number with KiB`,
		},
		{source(`serial: {port: x}, frame: raw, overflow: spill, spill: {path: "a\x00"}`), "sources[0].spill.path"},
		{
			source("serial: {port: x}, frame: raw, overflow: spill, buffer: 64KiB"),
			"sources[0].buffer: 64KiB: overflow: spill wants at least 256KiB",
		},
		{
			source("serial: {port: x}, frame: raw, overflow: spill, buffer: 64MiB, spill: {max: 255MiB}"),
			"sources[0].spill.max: 255MiB: want at least four times the buffer, which is 64MiB",
		},
		{
			"isolate: cell\n" + source("serial: {port: x}, frame: raw, overflow: spill"),
			"line 2: sources[0].overflow: spill does not go with isolate: cell",
		},
		{source("tcp: {listen: ':1', dial: ':2'}, frame: raw"), "either listen or dial"},
		{source("tcp: {dial: nowhere}, frame: raw"), "want host:port"},
		{source("udp: {dial: ':2'}, frame: raw"), "want listen"},
		{
			source("udp: {listen: ':99999'}, frame: raw"),
			`sources[0].udp.listen: ":99999": port "99999": want 0 to 65535`,
		},
		{source("udp: {listen: ':-1'}, frame: raw"), "want 0 to 65535"},
		{source("tcp: {dial: 'plc:0'}, frame: raw"), "want 1 to 65535"},
		{source("tcp: {listen: ':nothing-known'}, frame: raw"), "want 0 to 65535"},
		{
			source("tcp: {listen: '127.1:7000'}, frame: raw"),
			`sources[0].tcp.listen: "127.1:7000": host "127.1": want an address, as 127.0.0.1 or ::1, or a name`,
		},
		{source("tcp: {listen: '0x7f000001:7000'}, frame: raw"), `host "0x7f000001": want an address`},
		{source("udp: {listen: '2130706433:7000'}, frame: raw"), `host "2130706433": want an address`},
		{
			source("tcp: {dial: '10.0.0.256:7000'}, frame: raw"),
			`sources[0].tcp.dial: "10.0.0.256:7000": host "10.0.0.256": want an address`,
		},
		{source("tcp: {dial: '010.0.0.1:7000'}, frame: raw"), "want an address"},
		{source("tcp: {dial: 'plc..local:7000'}, frame: raw"), "want an address"},
		{source("tcp: {dial: 'a plc:7000'}, frame: raw"), "want an address"},
		{"api: {listen: '127.1:7411'}", `api.listen: "127.1:7411": host "127.1": want an address`},
		{source("serial: {port: \"/dev/tty\\u0000\"}, frame: raw"), "want no control characters"},
		{
			source("serial: {port: /dev/a}, frame: raw}, {id: b, serial: {port: /dev/./a}, frame: raw"),
			`sources[1].serial.port: "/dev/a" is taken by sources[0].serial.port`,
		},
		{
			source("udp: {listen: ':7000'}, frame: raw}, {id: b, udp: {listen: '127.0.0.1:7000'}, frame: raw"),
			"is taken by sources[0].udp.listen",
		},
		{source("tcp: {listen: '127.0.0.1:7411'}, frame: raw"), "is taken by api.listen"},
		{
			"api: {listen: '127.0.0.1:4222'}\nforward: [{to: nats}]\n" + source("serial: {port: x}, frame: raw"),
			`line 2: forward[0].listen: "127.0.0.1:4222" is taken by api.listen`,
		},
		{
			"forward: [{to: nats, mqtt: '127.0.0.1:1883'}]\n" + source("tcp: {listen: '127.0.0.1:1883'}, frame: raw"),
			`line 1: forward[0].mqtt: "127.0.0.1:1883" is taken by sources[0].tcp.listen`,
		},
		{
			source("udp: {listen: 'localhost:7000'}, frame: raw}, {id: b, udp: {listen: '127.0.0.1:07000'}, frame: raw"),
			`sources[1].udp.listen: "127.0.0.1:07000" is taken by sources[0].udp.listen, "localhost:7000": give one of the two another port, or take it out`,
		},
		{
			source("tcp: {listen: '0.0.0.0:7000'}, frame: raw}, {id: b, tcp: {listen: '[::1]:7000'}, frame: raw"),
			"is taken by sources[0].tcp.listen",
		},
		{
			source("tcp: {listen: '[::]:7000'}, frame: raw}, {id: b, tcp: {listen: 'Localhost:7000'}, frame: raw"),
			"is taken by sources[0].tcp.listen",
		},
		{source("tcp: {listen: '[::ffff:127.0.0.1]:7000'}, frame: raw}, {id: b, tcp: {listen: '127.0.0.1:7000'}, frame: raw"), "is taken by sources[0].tcp.listen"},
		{
			source("tcp: {listen: ':http'}, frame: raw}, {id: b, tcp: {listen: ':80'}, frame: raw"),
			"is taken by sources[0].tcp.listen",
		},
		{source("tcp: {listen: ':1', peers: some}, frame: raw"), "want first, newest or all"},
		{source("tcp: {listen: ':1', max_peers: 2}, frame: raw"), "goes with peers: all"},
		{
			"isolate: cell\n" + source("tcp: {listen: ':1', peers: all}, frame: raw"),
			"sources[0].tcp.peers: all does not go with isolate: cell, whose",
		},
		{
			"isolate: cell\nread: {mode: throughput}\n" + source("udp: {listen: ':1'}, frame: raw"),
			"isolate: cell goes with read.strategy ring and read.mode latency",
		},
		{
			"isolate: cell\nread: {strategy: pipeline}\n" + source("udp: {listen: ':1'}, frame: raw"),
			"isolate: cell goes with read.strategy ring",
		},
		{"isolate: cell\ncell: {priority: 100}\n" + source("udp: {listen: ':1'}, frame: raw"), "cell.priority: "},
		{"isolate: cell\ncell: {cpu: 3-1}\n" + source("udp: {listen: ':1'}, frame: raw"), "cell.cpu: CPU list"},
		{source("tcp: {listen: ':1', peers: all, max_peers: 2000}, frame: raw"), "want 0 to 1024"},
		{source("udp: {listen: ':1', max_peers: 2}, frame: raw"), "goes with tcp and peers: all"},
		{source("tcp: {dial: ':1', peers: first}, frame: raw"), "goes with listen"},
		{source("udp: {listen: ':1', peers: first}, frame: raw"), "goes with tcp"},
		{
			source("serial: {port: x}, frame: line, expect: {interval: 1s, tolerance: 20}"),
			`sources[0].expect.tolerance: "20": want 0% to 50%`,
		},
		{source("serial: {port: x}, frame: line, expect: {interval: 1s, tolerance: 51%}"), "want 0% to 50%"},
		{
			source("serial: {port: x}, frame: line, expect: {tolerance: 10%}"),
			"sources[0].expect.interval: 0s: want 1ms to 24h",
		},
		{source("serial: {port: x}, frame: tally128, expect: {interval: 1s}"), "goes with frames that have no numbers"},
		{
			source("serial: {port: x}, frame: line, silent_after: 1s, expect: {interval: 1s}"),
			"want at least two intervals",
		},
		{source("serial: {port: x}, frame: line, silent_after: -1s"), "silent_after: -1s: want 0s to 720h"},
		{"- 1\n- 2", "line"},
		{"\x00\x01", ""},
	} {
		_, err := Parse([]byte(c.yaml))
		switch {
		case err == nil:
			t.Errorf("%q is accepted", c.yaml)
		case !strings.Contains(err.Error(), c.want):
			t.Errorf("%q gives %q, want %q in it", c.yaml, err, c.want)
		case goType.MatchString(err.Error()):
			t.Errorf("%q shows the program's insides: %q", c.yaml, err)
		case strings.Contains(err.Error(), "\n"):
			t.Errorf("%q gives more than a line: %q", c.yaml, err)
		}
	}
}

// What can be had twice is not taken for what cannot.
func TestAddressesThatDoNotCollide(t *testing.T) {
	_, err := Parse([]byte(`
sources:
  - {id: a, tcp: {listen: "127.0.0.1:7000"}, frame: raw}
  - {id: b, tcp: {listen: "127.0.0.2:7000"}, frame: raw}
  - {id: c, udp: {listen: "127.0.0.1:7000"}, frame: raw}
  - {id: d, tcp: {listen: ":0"}, frame: raw}
  - {id: e, tcp: {listen: ":0"}, frame: raw}
  - {id: f, tcp: {dial: "plc:7000"}, frame: raw}
  - {id: g, tcp: {dial: "plc:7000"}, frame: raw}
  - {id: h, tcp: {listen: "[::1]:7001"}, frame: raw}
  - {id: i, tcp: {listen: "127.0.0.1:7001"}, frame: raw}
  - {id: j, tcp: {listen: "plc:7001"}, frame: raw}
`))
	if err != nil {
		t.Error(err)
	}
}

func TestPortThatTheKernelChooses(t *testing.T) {
	for listen, is := range map[string]bool{
		"127.0.0.1:0": true, "[::1]:00": true, ":0": true, "127.0.0.1:10": false, "127.0.0.1:http": false, "": false,
	} {
		if n := (&Net{Listen: listen}); n.AnyPort() != is {
			t.Errorf("%q: %v", listen, n.AnyPort())
		}
	}
	if (&Net{Dial: "127.0.0.1:0"}).AnyPort() || (*Net)(nil).AnyPort() {
		t.Error("it listens nowhere")
	}
}

// Everything that is wrong is reported at once, in order, with its line and its path; what follows
// from something that could not be read is not.
func TestAllProblemsAtOnce(t *testing.T) {
	_, err := Parse([]byte(`
log:
  sync: sometimes
  delay: fast
  keep: {size: 1MiB}
api: {listen: "127.0.0.1:99999", tkoen: x}
sources:
  - id: a b
    seral: {port: x}
    frame: {kind: raw, max: much}
  - id: c
    udp: {listen: ":99999"}
    frame: tally129
  - {id: c, frame: raw, tcp: {dial: a:1}}
`))
	var p Problems
	if !errors.As(err, &p) {
		t.Fatal(err)
	}
	var got []string
	for _, one := range p {
		got = append(got, fmt.Sprintf("%d %s", one.Line, one.Path))
	}
	want := []string{
		"3 log.sync", "4 log.delay", "5 log.keep.size", "6 api", "6 api.listen", "8 sources[0].id", "9 sources[0]",
		"10 sources[0].frame.max", "12 sources[1].udp.listen", "13 sources[1].frame.kind", "14 sources[2].id",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("found\n%v\nwant %v", err, want)
	}
}

// What YAML offers for not saying things twice is understood.
func TestAnchorsAndMerges(t *testing.T) {
	c, err := Parse([]byte(`
log: {dir: &here ./x}
sources:
  - &first {id: a, serial: &line {port: /dev/a, baud: "9600", parity: even}, frame: raw, buffer: 65536}
  - <<: *first
    id: b
    serial: {<<: *line, port: /dev/b}
  - id: *here2
`))
	if err == nil || !strings.Contains(err.Error(), "*here2") {
		t.Errorf("an alias to nothing gives %v", err)
	}
	if b := c.Sources[1]; b.ID != "b" || b.Serial.Port != "/dev/b" || b.Serial.Baud != 9600 || b.Frame.Kind != "raw" ||
		b.Buffer != 64<<10 {
		t.Errorf("read as %+v, %+v", b, b.Serial)
	}
	if a := c.Sources[0]; a.ID != "a" || a.Serial.Port != "/dev/a" || c.Log.Dir != "./x" {
		t.Errorf("read as %+v, %+v", a, a.Serial)
	}
}

// Aliases that lead to aliases end.
func TestAliasesThatDouble(t *testing.T) {
	text := "sources:\n  - &a0 {id: x}\n"
	for i := range 40 {
		text += fmt.Sprintf("  - &a%d {<<: [*a%d, *a%d]}\n", i+1, i, i)
	}
	if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), "too many aliases") {
		t.Errorf("they give %v", err)
	}
}

// Neither filling in defaults nor checking changes what it is asked about.
func TestChecksChangeNothing(t *testing.T) {
	c := Config{Sources: []Source{
		{ID: "a", Serial: &Serial{Port: "x"}, Frame: Frame{Kind: "raw"}},
		{ID: "b", TCP: &Net{Listen: ":1"}},
	}}
	full := c.WithDefaults()
	_ = full.Validate()
	if c.Log.Dir != "" || c.Sources[0].Overflow != "" || c.Sources[0].Serial.Baud != 0 || c.Sources[1].TCP.Peers != "" {
		t.Errorf("changed to %+v", c)
	}
	if full.Log.Dir == "" || full.Sources[0].Serial.Baud == 0 || full.Sources[1].TCP.Peers != PeersNewest {
		t.Errorf("the defaults are %+v", full)
	}
}

func FuzzConfig(f *testing.F) {
	f.Add(goodConfig)
	f.Add("sources: [{id: a, frame: {kind: {}}}]")
	f.Add("log: &a {dir: *a}")
	f.Add("log: &a *a\nsources: [&b *b, {<<: [*a, {}]}]")
	f.Add("? [a]\n: b\n--- !x |\n y")
	f.Fuzz(func(t *testing.T, text string) {
		took := time.Hour
		for try := 0; try < 3 && took > time.Second; try++ { // a machine may stand still once
			began := time.Now()
			if c, err := Parse([]byte(text)); err == nil {
				_ = c.Validate()
			}
			took = time.Since(began)
		}
		if took > time.Second {
			t.Errorf("%v for %q", took, text)
		}
		c, err := Parse([]byte(text))
		if err == nil {
			if err := c.Validate(); err != nil {
				t.Errorf("what Parse accepts, Validate refuses: %v", err)
			}
		}
		var p Problems
		if err != nil && !errors.As(err, &p) {
			t.Errorf("%T: %v", err, err)
		}
		for _, one := range p {
			if strings.Contains(one.Error(), "\n") {
				t.Errorf("more than a line: %q", one.Error())
			}
		}
	})
}

// A wrong interval is blamed alone, and not what would follow from it.
func TestWrongIntervalIsBlamedAlone(t *testing.T) {
	_, err := Parse([]byte("sources: [{id: a, serial: {port: x}, frame: line, expect: {interval: -1s}}]"))
	if err == nil || !strings.Contains(err.Error(), "interval: -1s") || strings.Contains(err.Error(), "silent_after") {
		t.Error(err)
	}
}

// Editors of Windows begin a file with a mark of its encoding, which YAML allows.
func TestMarkOfTheEncoding(t *testing.T) {
	if _, err := Parse([]byte("\ufeff" + goodConfig)); err != nil {
		t.Error(err)
	}
}

// A 0 where more is needed is wrong, not the default.
func TestZeroIsNoDefault(t *testing.T) {
	for text, want := range map[string]string{
		"baud: 9600":      "",
		"baud: 0":         "0: want 50 to 20000000",
		"data_bits: 0":    "0: want 5 to 8",
		"fifo_trigger: 0": "",
	} {
		_, err := Parse([]byte("sources: [{id: a, frame: raw, serial: {port: /dev/x, " + text + "}}]"))
		if err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// What a host may be: an address, or a name that can be looked up.
func TestHosts(t *testing.T) {
	for host, good := range map[string]bool{
		"": true, "127.0.0.1": true, "::1": true, "fe80::1%eth0": true, "localhost": true, "plc": true,
		"plc-2.example.org.": true,
		"3com.example":       true, "plc.1": true, "my_plc": true, "m\u00fchle": true, "beef": true,
		"0xford.example": true,
		"127.1":          false, "2130706433": false, "0x7f000001": false, "0X7F.1": false, "10.0.0.256": false,
		"010.0.0.1": false, "10.0.0.1.": false,
		".": false, "a..b": false, "-a": false, "a-": false, "a b": false, "a/b": false, "::g": false, "*": false,
		strings.Repeat("a", 64): false, strings.Repeat("a.", 128): false,
	} {
		text := net.JoinHostPort(host, "7000")
		if _, why := address("tcp", text, true); (why == "") != good {
			t.Errorf("%q: %q", text, why)
		}
	}
}

// Brackets in texts and comments are not within each other.
func TestManyBrackets(t *testing.T) {
	if _, err := Parse([]byte("log: {dir: a} # [\nsources:\n" +
		strings.Repeat("- {id: '[', tcp: {listen: \":1\"}, frame: \"[{\"} # [{\n", 200))); err == nil ||
		strings.Contains(err.Error(), "deep") {
		t.Error(err)
	}
}
