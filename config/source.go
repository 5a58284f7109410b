package config

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/framings"
	"github.com/tallywheel/tallywheel/serial"
)

// Overflow policies: what becomes of valid frames that the log cannot take fast enough.
const (
	OverflowBlock  = "block"       // stop reading: the device, or the kernel's buffer, has to wait
	OverflowOldest = "drop-oldest" // above 70 % fill, give up the oldest
	OverflowNewest = "drop-newest" // when full, give up those that come
	// beyond a part of the buffer, into a file; when that is full, give up those that come
	OverflowSpill = "spill"
)

// Source is one port. Exactly one of Serial, TCP and UDP is set.
type Source struct {
	ID         string  `yaml:"id" need:"yes" form:"id" about:"its name in the books and in the log"`
	Serial     *Serial `yaml:"serial" about:"a serial line"`
	TCP        *Net    `yaml:"tcp" about:"a device that connects, or is connected to"`
	UDP        *Net    `yaml:"udp" lacks:"dial peers max_peers" about:"devices that send datagrams"`
	Frame      Frame   `yaml:"frame" need:"yes" about:"how bytes are cut into frames"`
	Overflow   string  `yaml:"overflow" one:"block drop-oldest drop-newest spill" about:"what a slow log is met with"`
	Spill      *Spill  `yaml:"spill" about:"overflow: spill: the file that frames run over into"`
	Buffer     Size    `yaml:"buffer" min:"64KiB" max:"64MiB" about:"what may wait for the log"`
	Quarantine bool    `yaml:"quarantine" about:"keep bytes that were no frame, with their offsets"`
	Expect     *Expect `yaml:"expect" about:"when frames come, to miss those that do not"`
	// SilentAfter is 0 where a source may be silent for ever.
	SilentAfter time.Duration `yaml:"silent_after" min:"0s" max:"720h" about:"without a frame for so long it is silent; 0: never"`
}

// Spill is the file that frames of a source run over into.
type Spill struct {
	Path string `yaml:"path" about:"folder of the file, best on another disk; nothing: that of the log"`
	Max  Size   `yaml:"max" min:"4MiB" max:"16TiB" about:"bytes of the file; with peers: all each peer has one"`
}

func (s Spill) withDefaults() Spill {
	fill(&s.Max, 256<<20)
	return s
}

// Least of a source whose frames run over into a file: what is read at once is in memory until a
// write of some of it is over, and the file takes some of those writes.
const (
	leastSpillBuffer = 256 << 10
	leastSpillWrites = 4
)

func (s Source) validateSpill() (p Problems) {
	if s.Overflow != OverflowSpill {
		if s.Spill != nil {
			p.add("spill", "goes with overflow: spill")
		}
		return p
	}
	p.under("spill", checked(*s.Spill))
	switch {
	case len(p) > 0:
	case s.Buffer < leastSpillBuffer:
		p.add("buffer", "%s: overflow: spill wants at least %s", s.Buffer, Size(leastSpillBuffer))
	case s.Spill.Max < leastSpillWrites*s.Buffer:
		p.add("spill.max", "%s: want at least four times the buffer, which is %s", s.Spill.Max, s.Buffer)
	}
	return p
}

// Expect is the rhythm of a device whose frames have no numbers.
type Expect struct {
	Interval  time.Duration `yaml:"interval" need:"yes" min:"1ms" max:"24h" about:"between two frames"`
	Tolerance string        `yaml:"tolerance" form:"percent" about:"of the interval, by which a frame may be late"`
}

func (e Expect) withDefaults() Expect {
	fill(&e.Tolerance, "20%")
	return e
}

// silentIntervals is after how many intervals without a frame a source is silent, where nothing
// else is said.
const silentIntervals = 10

// Rhythm is when frames of the source are expected; all zero: never.
func (s Source) Rhythm() (interval, tolerance, silence time.Duration) {
	if s.Expect == nil {
		return 0, 0, s.SilentAfter
	}
	percent, _ := strconv.Atoi(strings.TrimSuffix(s.Expect.Tolerance, "%")) // Validate has seen to its form
	return s.Expect.Interval, s.Expect.Interval * time.Duration(percent) / 100, s.SilentAfter
}

func (s Source) validateExpect() Problems {
	p := checked(*s.Expect)
	dec, err := s.Decoder()
	switch {
	case len(p) > 0 || err != nil:
	case frame.EvidenceOf(dec).Numbered:
		p.add("", "goes with frames that have no numbers: those of %s do", s.Frame.Kind)
	case s.SilentAfter < 2*s.Expect.Interval:
		p.add("interval", "%v: silent_after is %v, want at least two intervals", s.Expect.Interval, s.SilentAfter)
	}
	return p
}

func (s Source) withDefaults() Source {
	if s.Serial != nil {
		line := s.Serial.withDefaults()
		s.Serial = &line
	}
	if s.TCP != nil {
		tcp := s.TCP.withDefaults()
		s.TCP = &tcp
	}
	fill(&s.Overflow, OverflowBlock)
	fill(&s.Buffer, 256<<10)
	if s.Spill != nil || s.Overflow == OverflowSpill {
		var spill Spill
		if s.Spill != nil {
			spill = *s.Spill
		}
		spill = spill.withDefaults()
		s.Spill = &spill
	}
	if s.Expect != nil {
		e := s.Expect.withDefaults()
		s.Expect = &e
		if e.Interval > 0 { // else it is refused, and not what would follow from it
			fill(&s.SilentAfter, silentIntervals*e.Interval)
		}
	}
	return s
}

// Validate reports what is wrong with the source.
func (s Source) Validate() Problems {
	p := checked(s)
	set := 0
	if s.Serial != nil {
		set++
		p.under("serial", s.Serial.Validate())
	}
	if s.TCP != nil {
		set++
		p.under("tcp", s.TCP.validateTCP())
	}
	if s.UDP != nil {
		set++
		p.under("udp", s.UDP.validateUDP())
	}
	if set != 1 {
		p.add("", "want exactly one of serial, tcp and udp")
	}
	p.under("frame", s.validateFrame())
	p = append(p, s.validateSpill()...)
	if s.Expect != nil {
		p.under("expect", s.validateExpect())
	}
	return p
}

// Serial is a serial line; see package serial.
type Serial struct {
	Port        string `yaml:"port" need:"yes" about:"path, or identity as tallywheel ports prints it"`
	Baud        int    `yaml:"baud" min:"50" max:"20000000" about:"bits a second"`
	DataBits    int    `yaml:"data_bits" min:"5" max:"8" about:"bits of a character"`
	Parity      string `yaml:"parity" one:"none even odd mark space" about:"parity bit"`
	StopBits    int    `yaml:"stop_bits" min:"1" max:"2" about:"stop bits"`
	Flow        string `yaml:"flow" one:"none rtscts xonxoff" about:"flow control"`
	LowLatency  bool   `yaml:"low_latency" about:"ask the driver to pass bytes on at once"`
	FIFOTrigger int    `yaml:"fifo_trigger" min:"0" max:"4096" about:"fill of the FIFO that raises an interrupt"`
	RS485       *RS485 `yaml:"rs485" about:"the driver's control of the transmitter on a two-wire bus"`
}

// RS485 is the driver's control of the transmitter.
type RS485 struct {
	RTSOnSend   bool          `yaml:"rts_on_send" about:"RTS is high while sending, else low"`
	DelayBefore time.Duration `yaml:"delay_before" min:"0s" max:"1m" about:"between RTS and the first bit"`
	DelayAfter  time.Duration `yaml:"delay_after" min:"0s" max:"1m" about:"between the last bit and RTS"`
	Receive     bool          `yaml:"receive" about:"hear oneself"`
}

func (c Serial) withDefaults() Serial {
	fill(&c.Baud, 115200)
	fill(&c.DataBits, 8)
	fill(&c.Parity, string(serial.NoParity))
	fill(&c.StopBits, 1)
	fill(&c.Flow, string(serial.NoFlow))
	return c
}

// Validate reports what is wrong with the line.
func (c Serial) Validate() Problems {
	p := checked(c)
	if c.Port == "" {
		p.add("port", "is missing; `tallywheel ports` lists what is there")
	}
	if c.RS485 != nil {
		p.under("rs485", checked(*c.RS485))
	}
	if _, err := c.Line().Check(); err != nil && len(p) == 0 {
		p.add("", "%v", err)
	}
	return p
}

// Line is how the line is set.
func (c Serial) Line() serial.Config {
	l := serial.Config{
		Baud: c.Baud, DataBits: c.DataBits, Parity: serial.Parity(c.Parity), StopBits: c.StopBits,
		Flow: serial.Flow(c.Flow), LowLatency: c.LowLatency, FIFOTrigger: c.FIFOTrigger,
	}
	if r := c.RS485; r != nil {
		l.RS485 = &serial.RS485{
			RTSOnSend: r.RTSOnSend, DelayBefore: r.DelayBefore, DelayAfter: r.DelayAfter, Receive: r.Receive,
		}
	}
	return l
}

// Whose connection is read where several come.
const (
	PeersFirst  = "first"  // the first one, to its end; the others wait
	PeersNewest = "newest" // the newest one, once the one before has ended or been silent for a while
	PeersAll    = "all"    // every one, with books for each address
)

// Net is a TCP or UDP source.
type Net struct {
	Listen   string `yaml:"listen" about:"host:port to wait at"`
	Dial     string `yaml:"dial" about:"tcp: host:port to connect to"`
	Peers    string `yaml:"peers" one:"first newest all" about:"tcp that listens: whose connection is read"`
	MaxPeers int    `yaml:"max_peers" min:"0" max:"1024" about:"peers: all: those with books of their own; 0: 64"`
}

func (n Net) withDefaults() Net {
	if n.Listen != "" {
		fill(&n.Peers, PeersNewest)
	}
	if n.Peers == PeersAll {
		fill(&n.MaxPeers, 64)
	}
	return n
}

// All reports whether every connection is read, each address into books of its own.
func (n *Net) All() bool { return n != nil && n.Peers == PeersAll }

// AnyPort reports whether it listens at a port that the kernel chooses anew each time.
func (n *Net) AnyPort() bool {
	if n == nil {
		return false
	}
	_, port, err := net.SplitHostPort(n.Listen)
	if err != nil {
		return false
	}
	number, err := strconv.Atoi(port)
	return err == nil && number == 0
}

func (n Net) validateTCP() (p Problems) {
	p = append(p, checked(n)...)
	if n.Listen == "" && n.Peers != "" {
		p.add("peers", "goes with listen")
	}
	if n.Peers != PeersAll && n.MaxPeers != 0 {
		p.add("max_peers", "goes with peers: all")
	}
	if (n.Listen == "") == (n.Dial == "") {
		p.add("", "want either listen or dial")
		return p
	}
	p = append(p, n.addresses("tcp")...)
	return p
}

func (n Net) validateUDP() (p Problems) {
	if n.Peers != "" {
		p.add("peers", "goes with tcp: datagrams of all senders share one source's books")
		n.Peers = ""
	}
	if n.MaxPeers != 0 {
		p.add("max_peers", "goes with tcp and peers: all")
		n.MaxPeers = 0
	}
	p = append(p, checked(n)...)
	if n.Listen == "" || n.Dial != "" {
		p.add("", "want listen")
		return p
	}
	return append(p, n.addresses("udp")...)
}

func (n Net) addresses(network string) (p Problems) {
	if n.Listen != "" {
		if _, why := address(network, n.Listen, true); why != "" {
			p.add("listen", "%s", why)
		}
	}
	if n.Dial != "" {
		if _, why := address(network, n.Dial, false); why != "" {
			p.add("dial", "%s", why)
		}
	}
	return p
}

// Frame is a framing: in the file a name alone, or a mapping with kind and settings.
type Frame struct {
	Kind      string        `yaml:"kind" need:"yes" about:"name of the framing"`
	Max       int           `yaml:"max" about:"longest frame in bytes"`
	Gap       time.Duration `yaml:"gap" min:"0s" max:"1m" about:"raw: the silence that ends a frame"`
	Prefix    int           `yaml:"prefix" about:"length: bytes of the length field"`
	Endian    string        `yaml:"endian" one:"big little" about:"length: order of its bytes"`
	Inclusive bool          `yaml:"inclusive" about:"length: it counts its own bytes"`
	Check     string        `yaml:"check" one:"none modbus ccitt nmea" about:"check value at the end of a frame"`
}

func (s Source) validateFrame() Problems {
	p := checked(s.Frame)
	if s.Frame.Kind == "" {
		p.add("", "is missing: want one of %s", strings.Join(framings.Names(), ", "))
	}
	if len(p) > 0 {
		return p
	}
	if _, err := s.Decoder(); err != nil {
		text, _ := strings.CutPrefix(err.Error(), "frame ")
		p.add("", "%s", text)
	}
	return p
}

// Decoder opens the framing of the source.
func (s Source) Decoder() (frame.Decoder, error) {
	cfg, err := s.Framing()
	if err != nil {
		return nil, err
	}
	return framings.New(cfg)
}

// Framing is the framing of the source, with what it needs to know of the line.
func (s Source) Framing() (cfg framings.Config, err error) {
	check, err := frame.ParseCheck(s.Frame.Check)
	if err != nil {
		return cfg, err
	}
	cfg = framings.Config{
		Kind: s.Frame.Kind, Max: s.Frame.Max, Gap: s.Frame.Gap, Prefix: s.Frame.Prefix,
		Little: s.Frame.Endian == "little", Inclusive: s.Frame.Inclusive, Check: check,
	}
	if s.Serial != nil {
		line, _ := s.Serial.Line().Check()
		cfg.Baud, cfg.CharBits = line.Baud, line.CharBits()
	}
	return cfg, nil
}

// Devices is how many may be open at a time.
func (c Config) Devices() (n int) {
	for _, s := range c.Sources {
		if n++; s.TCP.All() {
			n += s.TCP.MaxPeers
		}
	}
	return n
}

// claim is what can be had once only: a serial port, or an address to listen at.
type claim struct {
	path, text string
	kind       string // serial, tcp or udp
	host       string // of tcp and udp
	port       int    // … other than 0
}

// collisions reports ports and addresses that are asked for twice. Two sources may connect to one
// address: what each is sent is up to the other side.
func (c Config) collisions() (p Problems) {
	var all []claim
	listens := func(path, kind, addr string) {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return
		}
		if n, err := net.LookupPort(kind, port); err == nil && n != 0 {
			all = append(all, claim{path, addr, kind, plainHost(host), n})
		}
	}
	if !c.API.Off() {
		listens("api.listen", "tcp", c.API.Listen)
	}
	for i, s := range c.Sources {
		path := fmt.Sprintf("sources[%d]", i)
		switch {
		case s.Serial != nil && s.Serial.Port != "":
			all = append(all, claim{path: path + ".serial.port", text: filepath.Clean(s.Serial.Port), kind: "serial"})
		case s.TCP != nil && s.TCP.Listen != "":
			listens(path+".tcp.listen", "tcp", s.TCP.Listen)
		case s.UDP != nil && s.UDP.Listen != "":
			listens(path+".udp.listen", "udp", s.UDP.Listen)
		}
	}
	for i, f := range c.Forward {
		if f.Embedded() {
			path := fmt.Sprintf("forward[%d]", i)
			listens(path+".listen", "tcp", f.Listen)
			listens(path+".mqtt", "tcp", f.MQTT)
		}
	}
	for i, a := range all {
		j := slices.IndexFunc(all[:i], a.collides)
		if j < 0 {
			continue
		}
		todo := "give one of the two another port, or take it out"
		if a.kind == "serial" {
			todo = "take one of the two out"
		}
		p.add(a.path, "%q is taken by %s, %q: %s", a.text, all[j].path, all[j].text, todo)
	}
	return p
}

func (a claim) collides(b claim) bool {
	if a.kind != b.kind {
		return false
	}
	if a.kind == "serial" {
		return a.text == b.text
	}
	return a.port == b.port && (a.host == b.host || a.host == "" || b.host == "")
}

// plainHost is one name for what a host to listen at may be called: "" stands for all addresses,
// of both families, as net.Listen takes 0.0.0.0 and ::. Other names than localhost stay as they
// are: what they stand for is known when they are listened at.
func plainHost(host string) string {
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return "127.0.0.1" // net.Listen takes the address of IPv4 where a name has both
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case err != nil:
		return strings.ToLower(host)
	case ip.IsUnspecified() || ip.Unmap().IsUnspecified():
		return ""
	}
	return ip.Unmap().String()
}
