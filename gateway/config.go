package gateway

import (
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/framings"
	"github.com/tallywheel/tallywheel/reader"
	"github.com/tallywheel/tallywheel/seglog"
	"github.com/tallywheel/tallywheel/serial"
)

// Config is the configuration file. docs/guide/config.md explains every field.
type Config struct {
	Log     LogConfig      `yaml:"log"`
	API     APIConfig      `yaml:"api"`
	Server  ServerConfig   `yaml:"server"`
	Read    ReadConfig     `yaml:"read"`
	Sources []SourceConfig `yaml:"sources"`
}

// LogConfig is the log on disk.
type LogConfig struct {
	Dir      string        `yaml:"dir"`      // "" means ./data
	Engine   string        `yaml:"engine"`   // std (default), or uring: std, with a warning, where io_uring is refused
	Linked   bool          `yaml:"linked"`   // uring: a linked operation for each record; slower, and names the record that failed
	Sync     string        `yaml:"sync"`     // always, batch (default), interval or never
	Records  int           `yaml:"records"`  // batch: sync at so many records
	Delay    time.Duration `yaml:"delay"`    // batch: … or so long after the first
	Interval time.Duration `yaml:"interval"` // interval: time between syncs
	Segment  Size          `yaml:"segment"`  // size of a segment file
	Keep     KeepConfig    `yaml:"keep"`
	OnFull   string        `yaml:"on_full"` // stop (default) or drop-oldest
}

// KeepConfig limits the log; zero values keep all.
type KeepConfig struct {
	Size Size          `yaml:"size"`
	Age  time.Duration `yaml:"age"`
}

// APIConfig is the API and the page.
type APIConfig struct {
	Listen string    `yaml:"listen"` // "" means 127.0.0.1:7411, "off" none
	Token  string    `yaml:"token"`  // asked for as "Authorization: Bearer …"
	TLS    TLSConfig `yaml:"tls"`
}

// ServerConfig is the engine that serves the API and the page; see package server.
type ServerConfig struct {
	Engine string `yaml:"engine"` // auto (default): the best for handlers on goroutines, epoll; uring, epoll or std
	Loops  int    `yaml:"loops"`  // of uring and epoll; 1 if it is not set
}

// TLSConfig names PEM files.
type TLSConfig struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// ReadConfig is how ports are read; see package reader.
type ReadConfig struct {
	Strategy string        `yaml:"strategy"` // ring (default), pipeline, blocking, polling
	Mode     string        `yaml:"mode"`     // ring: latency (default), throughput, hybrid
	Tick     time.Duration `yaml:"tick"`
	Spin     time.Duration `yaml:"spin"`
	Readers  int           `yaml:"readers"`
}

// SourceConfig is one port. Exactly one of Serial, TCP and UDP is set.
type SourceConfig struct {
	ID         string        `yaml:"id"`
	Serial     *SerialConfig `yaml:"serial"`
	TCP        *NetConfig    `yaml:"tcp"`
	UDP        *NetConfig    `yaml:"udp"`
	Frame      FrameConfig   `yaml:"frame"`
	Overflow   string        `yaml:"overflow"` // block (default), drop-oldest, drop-newest
	Buffer     Size          `yaml:"buffer"`   // what may wait for the log, 0 means 256 KiB
	Quarantine bool          `yaml:"quarantine"`
}

// SerialConfig is a serial line; see package serial.
type SerialConfig struct {
	Port        string       `yaml:"port"` // path, or identity as `tallywheel ports` prints it
	Baud        int          `yaml:"baud"`
	DataBits    int          `yaml:"data_bits"`
	Parity      string       `yaml:"parity"`
	StopBits    int          `yaml:"stop_bits"`
	Flow        string       `yaml:"flow"`
	LowLatency  bool         `yaml:"low_latency"`
	FIFOTrigger int          `yaml:"fifo_trigger"`
	RS485       *RS485Config `yaml:"rs485"`
}

// RS485Config is the driver's control of the transmitter.
type RS485Config struct {
	RTSOnSend   bool          `yaml:"rts_on_send"`
	DelayBefore time.Duration `yaml:"delay_before"`
	DelayAfter  time.Duration `yaml:"delay_after"`
	Receive     bool          `yaml:"receive"`
}

// NetConfig is a TCP or UDP source.
type NetConfig struct {
	Listen string `yaml:"listen"`
	Dial   string `yaml:"dial"` // TCP only
}

// FrameConfig is a framing: a name alone, or a map with "kind" and settings.
type FrameConfig struct {
	Kind      string        `yaml:"kind"`
	Max       int           `yaml:"max"`
	Gap       time.Duration `yaml:"gap"`
	Prefix    int           `yaml:"prefix"`
	Endian    string        `yaml:"endian"` // big (default) or little
	Inclusive bool          `yaml:"inclusive"`
	Check     string        `yaml:"check"` // none (default), modbus, ccitt
}

// UnmarshalYAML takes a name or a map.
func (f *FrameConfig) UnmarshalYAML(decode func(any) error) error {
	var name string
	if decode(&name) == nil {
		f.Kind = name
		return nil
	}
	type plain FrameConfig
	return decode((*plain)(f))
}

// Size is a number of bytes; in a file it may carry KiB, MiB, GiB, TiB, or kB, MB, GB, TB.
type Size int64

var sizeForm = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)\s*([kKMGT]i?B|B)?$`)

// UnmarshalYAML reads a size.
func (s *Size) UnmarshalYAML(decode func(any) error) error {
	var text string
	if err := decode(&text); err != nil {
		return err
	}
	m := sizeForm.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return fmt.Errorf("size %q: want a number with KiB, MiB, GiB, kB, MB or GB", text)
	}
	n, _ := strconv.ParseFloat(m[1], 64) // the form admits numbers only
	unit := 1.0
	if m[2] != "" && m[2] != "B" {
		step := 1000.0
		if strings.Contains(m[2], "i") {
			step = 1024
		}
		for range strings.IndexByte("KMGT", strings.ToUpper(m[2])[0]) + 1 {
			unit *= step
		}
	}
	if n*unit > 1<<53 {
		return fmt.Errorf("size %q is too large", text)
	}
	*s = Size(n * unit)
	return nil
}

// Load reads a configuration file and checks it.
func Load(path string) (Config, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Config{}, err
	}
	cfg, err := Parse(b)
	if err != nil {
		return cfg, fmt.Errorf("%s: %w", path, err)
	}
	return cfg, nil
}

// Parse reads a configuration and checks it. Errors name line and column where they can.
func Parse(b []byte) (cfg Config, err error) {
	defer func() { // the YAML library is not ours: whatever it makes of strange input is an error, not a crash
		if r := recover(); r != nil {
			err = fmt.Errorf("not YAML: %v", r)
		}
	}()
	if err := yaml.UnmarshalWithOptions(b, &cfg, yaml.Strict()); err != nil && len(strings.TrimSpace(string(b))) > 0 {
		return cfg, explain(err)
	}
	return cfg, cfg.Check()
}

// explain makes the library's report one line, and names the field that was probably meant.
func explain(err error) error {
	var unknown *yaml.UnknownFieldError
	if errors.As(err, &unknown) {
		name := unknown.Token.Value
		text := fmt.Sprintf("line %d: unknown key %q", unknown.Token.Position.Line, name)
		if near := nearest(name, keys(reflect.TypeFor[Config]())); near != "" {
			text += fmt.Sprintf("; did you mean %q?", near)
		}
		return errors.New(text)
	}
	var report yaml.Error
	if errors.As(err, &report) {
		if t := report.GetToken(); t != nil && t.Position != nil {
			return fmt.Errorf("line %d: %s", t.Position.Line, strings.ReplaceAll(report.GetMessage(), "\n", " "))
		}
		return errors.New(report.GetMessage())
	}
	return err
}

// keys lists every key that a configuration may have.
func keys(t reflect.Type) (names []string) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return keys(t.Elem())
	case reflect.Struct:
		for f := range t.Fields() {
			if tag := f.Tag.Get("yaml"); tag != "" {
				names = append(names, tag)
				names = append(names, keys(f.Type)...)
			}
		}
	}
	return names
}

// nearest returns the name with the fewest changes from s, "" if none is near.
func nearest(s string, names []string) string {
	best, fewest := "", 1+len(s)/3
	for _, n := range names {
		if d := distance(s, n); d <= fewest && (best == "" || d < fewest) {
			best, fewest = n, d
		}
	}
	return best
}

// distance is the number of changes of single characters, swaps of neighbours included, that make b out of a.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}

var syncPolicies = map[string]seglog.SyncPolicy{
	"": seglog.SyncBatch, "batch": seglog.SyncBatch, "always": seglog.SyncAlways,
	"interval": seglog.SyncInterval, "never": seglog.SyncNever,
}

var idForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Check fills in defaults and reports the first thing that is wrong.
func (c *Config) Check() error {
	if c.Log.Dir == "" {
		c.Log.Dir = "./data"
	}
	if c.Log.Sync == "" {
		c.Log.Sync = "batch"
	}
	if c.API.Listen == "" {
		c.API.Listen = "127.0.0.1:7411"
	}
	if _, ok := syncPolicies[c.Log.Sync]; !ok {
		return fmt.Errorf("log: sync %q: want always, batch, interval or never", c.Log.Sync)
	}
	if e := c.Log.Engine; e != "" && e != "std" && e != "uring" {
		return fmt.Errorf("log: engine %q: want std or uring", e)
	}
	if c.Log.Linked && c.Log.Engine != "uring" {
		return errors.New("log: linked: goes with engine: uring")
	}
	if f := c.Log.OnFull; f != "" && f != "stop" && f != "drop-oldest" {
		return fmt.Errorf("log: on_full %q: want stop or drop-oldest", f)
	}
	if s := c.Log.Segment; s != 0 && (s < 1<<20 || s > 1<<34) {
		return fmt.Errorf("log: segment %d: want 1MiB to 16GiB", s)
	}
	if k := c.Log.Keep; k.Size < 0 || k.Age < 0 || k.Size != 0 && k.Size < 3*max(c.Log.Segment, 1<<20) {
		return fmt.Errorf("log: keep: want a size of at least three segments and an age above 0")
	}
	if c.Log.Records < 0 || c.Log.Delay < 0 || c.Log.Interval < 0 || c.Log.Delay > time.Minute || c.Log.Interval > time.Hour {
		return errors.New("log: records, delay and interval: want nothing negative, at most 1m of delay and 1h of interval")
	}
	if err := c.API.check(); err != nil {
		return fmt.Errorf("api: %w", err)
	}
	if err := c.Server.check(); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	if err := c.Read.reader().Check(); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	seen := map[string]bool{}
	for i := range c.Sources {
		s := &c.Sources[i]
		if !idForm.MatchString(s.ID) {
			return fmt.Errorf("sources[%d]: id %q: want letters, digits, dot, dash and underscore, at most 64", i, s.ID)
		}
		if seen[s.ID] {
			return fmt.Errorf("sources[%d]: id %q is there twice", i, s.ID)
		}
		seen[s.ID] = true
		if err := s.check(); err != nil {
			return fmt.Errorf("source %s: %w", s.ID, err)
		}
	}
	return nil
}

// check refuses to show data to a network without asking who looks.
func (a APIConfig) check() error {
	if a.Listen == "off" {
		return nil
	}
	host, port, err := net.SplitHostPort(a.Listen)
	if err != nil {
		return fmt.Errorf("listen %q: want host:port, as 127.0.0.1:7411: %w", a.Listen, err)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("listen %q: port %q: want 0 to 65535", a.Listen, port)
	}
	if (a.TLS.Cert == "") != (a.TLS.Key == "") {
		return errors.New("tls: want both cert and key")
	}
	if a.Token != "" && len(a.Token) < 16 {
		return errors.New("token: want at least 16 characters")
	}
	if !loopback(host) && (a.Token == "" || a.TLS.Cert == "") {
		return fmt.Errorf("listen %q is open to the network: set token and tls {cert, key}, or listen on 127.0.0.1", a.Listen)
	}
	return nil
}

func (s *ServerConfig) check() error {
	switch s.Engine {
	case "":
		s.Engine = "auto"
	case "auto", "uring", "epoll", "std":
	default:
		return fmt.Errorf("engine %q: want auto, uring, epoll or std", s.Engine)
	}
	if s.Loops == 0 {
		s.Loops = 1
	}
	if s.Loops < 0 || s.Loops > 64 {
		return fmt.Errorf("loops %d: want 1 to 64", s.Loops)
	}
	return nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// reader is the reading of the configuration; the strategy pipeline reads as blocking does.
func (r ReadConfig) reader() reader.Config {
	if r.Strategy == pipelineStrategy {
		r.Strategy = string(reader.Blocking)
	}
	return reader.Config{
		Strategy: reader.Strategy(r.Strategy), Mode: reader.Mode(r.Mode), Tick: r.Tick, Spin: r.Spin, Readers: r.Readers,
	}
}

const (
	defaultBuffer = 256 << 10
	minBuffer     = 64 << 10
	maxBuffer     = 64 << 20
)

func (s *SourceConfig) check() error {
	set := 0
	for _, on := range []bool{s.Serial != nil, s.TCP != nil, s.UDP != nil} {
		if on {
			set++
		}
	}
	if set != 1 {
		return errors.New("want exactly one of serial, tcp and udp")
	}
	if s.Serial != nil {
		if s.Serial.Port == "" {
			return errors.New("serial: port is missing; `tallywheel ports` lists what is there")
		}
		if _, err := s.Serial.line().Check(); err != nil {
			return fmt.Errorf("serial: %w", err)
		}
	}
	if t := s.TCP; t != nil && (t.Listen == "") == (t.Dial == "") {
		return errors.New("tcp: want either listen or dial")
	}
	if u := s.UDP; u != nil && (u.Listen == "" || u.Dial != "") {
		return errors.New("udp: want listen")
	}
	for _, n := range []*NetConfig{s.TCP, s.UDP} {
		if n == nil {
			continue
		}
		if _, _, err := net.SplitHostPort(n.Listen + n.Dial); err != nil {
			return fmt.Errorf("address %q: want host:port", n.Listen+n.Dial)
		}
	}
	switch s.Overflow {
	case "":
		s.Overflow = overflowBlock
	case overflowBlock, overflowOldest, overflowNewest:
	default:
		return fmt.Errorf("overflow %q: want block, drop-oldest or drop-newest", s.Overflow)
	}
	if s.Buffer == 0 {
		s.Buffer = defaultBuffer
	}
	if s.Buffer < minBuffer || s.Buffer > maxBuffer {
		return fmt.Errorf("buffer %d: want 64KiB to 64MiB", s.Buffer)
	}
	_, err := s.decoder()
	return err
}

// decoder opens the framing of the source.
func (s *SourceConfig) decoder() (frame.Decoder, error) {
	if s.Frame.Kind == "" {
		return nil, fmt.Errorf("frame is missing: want one of %s", strings.Join(framings.Names(), ", "))
	}
	check, err := frame.ParseCheck(s.Frame.Check)
	if err != nil {
		return nil, fmt.Errorf("frame: %w", err)
	}
	if e := s.Frame.Endian; e != "" && e != "big" && e != "little" {
		return nil, fmt.Errorf("frame: endian %q: want big or little", e)
	}
	cfg := framings.Config{
		Kind: s.Frame.Kind, Max: s.Frame.Max, Gap: s.Frame.Gap, Prefix: s.Frame.Prefix,
		Little: s.Frame.Endian == "little", Inclusive: s.Frame.Inclusive, Check: check,
	}
	if s.Serial != nil {
		line, _ := s.Serial.line().Check()
		cfg.Baud, cfg.CharBits = line.Baud, line.CharBits()
	}
	return framings.New(cfg)
}

func (c *SerialConfig) line() serial.Config {
	l := serial.Config{
		Baud: c.Baud, DataBits: c.DataBits, Parity: serial.Parity(c.Parity), StopBits: c.StopBits,
		Flow: serial.Flow(c.Flow), LowLatency: c.LowLatency, FIFOTrigger: c.FIFOTrigger,
	}
	if r := c.RS485; r != nil {
		l.RS485 = &serial.RS485{RTSOnSend: r.RTSOnSend, DelayBefore: r.DelayBefore, DelayAfter: r.DelayAfter, Receive: r.Receive}
	}
	return l
}
