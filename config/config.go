// Package config is the configuration file: its sections, what they mean where they say nothing,
// and what is wrong with them.
//
// # Concepts
//
// A [Config] has a field for each section. Tags say what a field is about and which values it may
// have; [Parse], the checks and [Schema] all read them, so that none of the three can go stale.
// What concerns several fields is in the sections' Validate.
//
// # Guarantees
//
// [Parse] reports everything that is wrong at once, each [Problem] with its line and its path in
// the file. No method changes its receiver. What [Parse] has accepted, Validate accepts.
//
// docs/guide/config.md explains every field.
package config

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/proof"
	"github.com/tallywheel/tallywheel/reader"
	"github.com/tallywheel/tallywheel/rt"
	"github.com/tallywheel/tallywheel/seglog"
)

// Config is the configuration file. Fields that are zero mean what WithDefaults makes of them.
type Config struct {
	Log     Log       `yaml:"log" about:"the log on disk"`
	API     API       `yaml:"api" about:"the API and the page"`
	Server  Server    `yaml:"server" about:"what serves the API and the page"`
	Read    Read      `yaml:"read" about:"how ports are read"`
	Notify  Notify    `yaml:"notify" about:"who is told when a trouble begins, and when it ends"`
	Forward []Forward `yaml:"forward" about:"where frames go on to"`
	Isolate string    `yaml:"isolate" one:"none process cell" about:"process: reading, recording and what both need lie in three processes, so that a crash of one loses nothing; cell: … and the reader keeps time"`
	Cell    Cell      `yaml:"cell" about:"isolate: cell: how the reader keeps time"`
	Sources []Source  `yaml:"sources" about:"what is recorded"`
}

// WithDefaults is the configuration with everything filled in that it leaves open.
func (c Config) WithDefaults() Config {
	c.Log, c.API = c.Log.withDefaults(), c.API.withDefaults()
	c.Cell = c.Cell.withDefaults()
	c.Server, c.Read, c.Notify = c.Server.withDefaults(), c.Read.withDefaults(), c.Notify.withDefaults()
	fill(&c.Isolate, "none")
	sources := make([]Source, len(c.Sources))
	for i, s := range c.Sources {
		sources[i] = s.withDefaults()
	}
	c.Sources = sources
	forward := make([]Forward, len(c.Forward))
	for i, f := range c.Forward {
		forward[i] = f.withDefaults()
	}
	c.Forward = forward
	return c
}

// Validate reports everything that is wrong with a configuration that has its defaults, as
// [Problems].
func (c Config) Validate() error {
	p := checked(c)
	if c.Isolate == "process" && c.Read.Strategy == Pipeline {
		p.add("isolate",
			"process goes with read.strategy ring, blocking or polling: the stages of pipeline are of one process")
	}
	if c.KeepsTime() && (c.Read.Strategy != string(reader.Ring) || c.Read.Mode != string(reader.Latency)) {
		p.add("isolate",
			"cell goes with read.strategy ring and read.mode latency, where one thread waits for all ports and is woken by each")
	}
	p.under("cell", c.Cell.Validate())
	p.under("log", c.Log.Validate())
	p.under("api", c.API.Validate())
	p.under("server", c.Server.Validate())
	p.under("read", c.Read.Validate())
	p.under("notify", c.Notify.Validate())
	seen := map[string]bool{}
	for i, s := range c.Sources {
		path := fmt.Sprintf("sources[%d]", i)
		p.under(path, s.Validate())
		if s.ID != "" && seen[s.ID] {
			p.add(path+".id", "%q is there twice", s.ID)
		}
		seen[s.ID] = true
		if c.KeepsTime() && s.Overflow == OverflowSpill {
			p.add(path+".overflow",
				"spill does not go with isolate: cell, whose reader writes no file while it keeps time: want block, or isolate: process")
		}
		if c.KeepsTime() && s.TCP.All() {
			p.add(path+".tcp.peers",
				"all does not go with isolate: cell, whose reader takes no memory for a peer that comes while it keeps time: want first, newest, or isolate: process")
		}
	}
	p = append(p, c.validateForward()...)
	p = append(p, c.collisions()...)
	return p.orNil()
}

// Isolated reports whether reading and recording are processes of their own.
func (c Config) Isolated() bool { return c.Isolate == "process" || c.KeepsTime() }

// KeepsTime reports whether the process that reads keeps time.
func (c Config) KeepsTime() bool { return c.Isolate == "cell" }

// Cell is how the reader of `isolate: cell` keeps time.
type Cell struct {
	Priority int    `yaml:"priority" min:"1" max:"99" about:"of the thread that reads, in SCHED_FIFO"`
	CPU      string `yaml:"cpu" about:"CPUs on which that may run, such as 1 or 2-3; nothing: all"`
}

// defaultPriority is below that of the threads which serve interrupts under PREEMPT_RT: without
// those nothing comes that could be read.
const defaultPriority = 40

func (c Cell) withDefaults() Cell {
	fill(&c.Priority, defaultPriority)
	return c
}

// Validate reports what is wrong with the section.
func (c Cell) Validate() Problems {
	p := checked(c)
	if c.CPU != "" {
		if _, err := rt.ParseCPUs(c.CPU); err != nil {
			p.add("cpu", "%v", err)
		}
	}
	return p
}

// Log is the log on disk.
type Log struct {
	Dir      string        `yaml:"dir" about:"folder of the log"`
	Engine   string        `yaml:"engine" one:"std uring" about:"by which calls its files are written"`
	Linked   bool          `yaml:"linked" about:"engine uring: a linked operation for each record"`
	Sync     string        `yaml:"sync" one:"always batch interval never" about:"when records are synced"`
	Records  int           `yaml:"records" min:"1" max:"1000000000" about:"batch: sync at so many records"`
	Delay    time.Duration `yaml:"delay" min:"1ns" max:"1m" about:"batch: … or so long after the first"`
	Interval time.Duration `yaml:"interval" min:"1ns" max:"1h" about:"interval: time between syncs"`
	Segment  Size          `yaml:"segment" min:"1MiB" max:"16GiB" about:"size of a segment file"`
	Keep     Keep          `yaml:"keep" about:"limits beyond which the oldest segments are removed"`
	Reserve  Size          `yaml:"reserve" min:"1MiB" about:"space of the disk that the log leaves free"`
	OnFull   string        `yaml:"on_full" one:"stop drop-oldest" about:"what a full disk is met with"`
	Scrub    string        `yaml:"scrub" form:"period" about:"in which all that is stored is read and checked once"`
	Prove    string        `yaml:"prove" one:"on off" about:"on: make what proves to others what the log holds, heads of its segments and checkpoints; nothing: on where sign is, else off"`
	Sign     string        `yaml:"sign" about:"file of the key that signs the checkpoints, as tallywheel log keygen makes it; nothing: nobody signs them"`
}

func (l Log) withDefaults() Log {
	fill(&l.Dir, "./data")
	fill(&l.Engine, "std")
	fill(&l.Sync, "batch")
	fill(&l.Records, 4096)
	fill(&l.Delay, 50*time.Millisecond)
	fill(&l.Interval, time.Second)
	fill(&l.Segment, 64<<20)
	fill(&l.Reserve, 16<<20)
	fill(&l.OnFull, "stop")
	fill(&l.Scrub, "24h")
	if l.Sign != "" {
		fill(&l.Prove, "on")
	}
	fill(&l.Prove, "off")
	return l
}

// maxKey is the largest file of a key, in bytes.
const maxKey = 4 << 10

// Signer reads the key that signs the checkpoints; nil: there is none.
func (l Log) Signer() (proof.Signer, error) {
	if l.Sign == "" {
		return nil, nil
	}
	text, err := sys.ReadOrdinary(l.Sign, maxKey)
	if err != nil {
		return nil, err
	}
	s, err := proof.ParseSigner(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.Sign, err)
	}
	return s, nil
}

// ScrubPeriod is the time in which all that is stored is read and checked once; 0: never.
func (l Log) ScrubPeriod() time.Duration {
	d, err := time.ParseDuration(l.Scrub)
	if err != nil { // off
		return 0
	}
	return d
}

// keptSegments is how many segments the log needs at least: the one that is written to, the one
// made ready behind it, and one to read.
const keptSegments = 3

// Validate reports what is wrong with the section.
func (l Log) Validate() Problems {
	p := checked(l)
	p.under("keep", checked(l.Keep))
	if l.Linked && l.Engine != "uring" {
		p.add("linked", "goes with engine: uring")
	}
	if l.Sign != "" && l.Prove == "off" {
		p.add("sign", "goes with prove: on")
	}
	if least := keptSegments * l.Segment; l.Keep.Size != 0 && l.Keep.Size < least {
		p.add("keep.size", "%s: want at least three segments, which are %s", l.Keep.Size, least)
	}
	return p
}

// Policy is when the log syncs.
func (l Log) Policy() seglog.SyncPolicy {
	return map[string]seglog.SyncPolicy{
		"batch": seglog.SyncBatch, "always": seglog.SyncAlways,
		"interval": seglog.SyncInterval, "never": seglog.SyncNever,
	}[l.Sync]
}

// Keep limits the log; zero values keep all.
type Keep struct {
	Size Size          `yaml:"size" min:"0" about:"of all segments; nothing: no limit"`
	Age  time.Duration `yaml:"age" min:"0s" about:"of a segment's last record; nothing: no limit"`
	// Unforwarded is true unless the file says otherwise.
	Unforwarded *bool `yaml:"unforwarded" about:"keep what a destination of forward has not acknowledged, also beyond the limits"`
}

// Holds reports whether the limits wait for what has not been forwarded.
func (k Keep) Holds() bool { return k.Unforwarded == nil || *k.Unforwarded }

// API is the API and the page.
type API struct {
	Listen string `yaml:"listen" about:"host:port, or off; anything but loopback needs token and tls"`
	Token  string `yaml:"token" form:"token" secret:"yes" about:"asked for as Authorization: Bearer, or as the password"`
	TLS    TLS    `yaml:"tls" about:"PEM files"`
}

// TLS names PEM files.
type TLS struct {
	Cert string `yaml:"cert" about:"certificate, with those that vouch for it"`
	Key  string `yaml:"key" about:"private key"`
}

// maxPEM is the largest file of a certificate or a key, in bytes.
const maxPEM = 1 << 20

// Load reads the files: ordinary ones of at most 1 MiB each. pem is the certificate's.
func (t TLS) Load() (pair tls.Certificate, pem []byte, err error) {
	if pem, err = sys.ReadOrdinary(t.Cert, maxPEM); err != nil {
		return pair, nil, err
	}
	key, err := sys.ReadOrdinary(t.Key, maxPEM)
	if err != nil {
		return pair, nil, err
	}
	pair, err = tls.X509KeyPair(pem, key)
	return pair, pem, err
}

func (a API) withDefaults() API {
	fill(&a.Listen, "127.0.0.1:7411")
	return a
}

// Off reports whether there is no API.
func (a API) Off() bool { return a.Listen == "off" }

// Validate reports what is wrong with the section. It refuses to show data to a network without
// asking who looks.
func (a API) Validate() Problems {
	p := checked(a)
	p.under("tls", checked(a.TLS))
	if a.Off() {
		return p
	}
	if (a.TLS.Cert == "") != (a.TLS.Key == "") {
		p.add("tls", "want both cert and key")
	}
	host, why := address("tcp", a.Listen, true)
	if why != "" {
		p.add("listen", "%s, or off", why)
	} else if !Loopback(host) && (a.Token == "" || a.TLS.Cert == "") {
		p.add("listen", "%q is open to the network: set token and tls {cert, key}, or listen on 127.0.0.1", a.Listen)
	}
	return p
}

// Loopback reports whether a host is this machine for itself.
func Loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// address takes a host:port apart, and says what is wrong with it.
func address(network, text string, listens bool) (host, why string) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return "", fmt.Sprintf("%q: want host:port, as 127.0.0.1:7411", text)
	}
	n, err := strconv.Atoi(port)
	if err != nil && strings.Trim(port, "0123456789+-") != "" { // the name of a service
		n, err = net.LookupPort(network, port)
	}
	least := 0
	if !listens {
		least = 1
	}
	if err != nil || n < least || n > 65535 {
		return "", fmt.Sprintf("%q: port %q: want %d to 65535", text, port, least)
	}
	if !isHost(host) {
		return "",
			fmt.Sprintf("%q: host %q: want an address, as 127.0.0.1 or ::1, or a name of letters, digits, - and .",
				text, host)
	}
	return host, ""
}

// isHost reports whether a host can be found: an address as net/netip reads it, or what can be the
// name of a machine. 127.1 and 0x7f000001, which other programs read as addresses, would be looked
// up as names, for nothing.
func isHost(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil || host == "" { // nothing: every address, or this machine
		return true
	}
	numbers := true
	for label := range strings.SplitSeq(strings.TrimSuffix(host, "."), ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "-") != label ||
			strings.ContainsFunc(label, isNoneOfAName) {
			return false
		}
		_, err := strconv.ParseUint(label, 10, 64)
		numbers = numbers && (err == nil || strings.HasPrefix(strings.ToLower(label), "0x"))
	}
	return len(host) <= 254 && !numbers
}

// isNoneOfAName reports whether the name of a machine has no such character. Letters that are not
// of ASCII are left to whoever looks it up.
func isNoneOfAName(r rune) bool {
	return r != '-' && r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
}

// Server is the engine that serves the API and the page; see package server.
type Server struct {
	Engine string `yaml:"engine" one:"auto uring epoll std" about:"auto: the best for it here"`
	Loops  int    `yaml:"loops" min:"1" max:"64" about:"of uring and epoll"`
}

func (s Server) withDefaults() Server {
	fill(&s.Engine, "auto")
	fill(&s.Loops, 1)
	return s
}

// Validate reports what is wrong with the section.
func (s Server) Validate() Problems { return checked(s) }

// Pipeline is the strategy that cuts the work behind a blocking read into stages; package recorder
// has it.
const Pipeline = "pipeline"

// Read is how ports are read; see package reader.
type Read struct {
	Strategy string        `yaml:"strategy" one:"ring pipeline blocking polling" about:"who waits for the ports, and how"`
	Mode     string        `yaml:"mode" one:"latency throughput hybrid" about:"ring: when it wakes"`
	Tick     time.Duration `yaml:"tick" min:"100us" max:"1s" about:"throughput and polling: time between two looks"`
	Spin     time.Duration `yaml:"spin" min:"1ns" max:"1s" about:"hybrid: how long to spin"`
	Readers  int           `yaml:"readers" min:"1" max:"1024" about:"polling: ports read at a time"`
}

func (r Read) withDefaults() Read {
	fill(&r.Strategy, string(reader.Ring))
	fill(&r.Mode, string(reader.Latency))
	tick := 5 * time.Millisecond
	if r.Strategy == string(reader.Polling) {
		tick = 10 * time.Millisecond
	}
	fill(&r.Tick, tick)
	fill(&r.Spin, time.Millisecond)
	fill(&r.Readers, 3)
	return r
}

// Validate reports what is wrong with the section.
func (r Read) Validate() Problems {
	p := checked(r)
	if err := r.Reader().Check(); err != nil && len(p) == 0 {
		p.add("", "%v", err)
	}
	return p
}

// Reader is the reading that the section asks for; the strategy pipeline reads as blocking does.
func (r Read) Reader() reader.Config {
	if r.Strategy == Pipeline {
		r.Strategy = string(reader.Blocking)
	}
	return reader.Config{
		Strategy: reader.Strategy(r.Strategy), Mode: reader.Mode(r.Mode), Tick: r.Tick, Spin: r.Spin,
		Readers: r.Readers,
	}
}

// Notify is who is told of troubles; see package recorder/notify.
type Notify struct {
	Webhook string        `yaml:"webhook" form:"web" secret:"yes" about:"URL that a JSON event is sent to by POST; nothing: none"`
	Command []string      `yaml:"command" about:"program and arguments, run with a JSON event on its standard input; nothing: none"`
	Timeout time.Duration `yaml:"timeout" min:"100ms" max:"5m" about:"of one try"`
	Queue   int           `yaml:"queue" min:"1" max:"100000" about:"events that wait, at most"`
}

func (n Notify) withDefaults() Notify {
	fill(&n.Timeout, 10*time.Second)
	fill(&n.Queue, 256)
	return n
}

// Validate reports what is wrong with the section.
func (n Notify) Validate() Problems {
	p := checked(n)
	if _, err := url.Parse(n.Webhook); err != nil && len(p) == 0 {
		p.add("webhook", "want a URL, as https://example.org/alarms") // what it is may be a secret
	}
	if len(n.Command) > 0 && n.Command[0] == "" {
		p.add("command", "its first word is the program")
	}
	if slices.ContainsFunc(n.Command, func(word string) bool { return strings.Contains(word, "\x00") }) {
		p.add("command", "want no byte of zero: no program can be given one")
	}
	return p
}

// fill sets what is zero.
func fill[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}
