// Package framings opens a framing by the name that a configuration gives it.
package framings

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/cobs"
	"github.com/tallywheel/tallywheel/frame/length"
	"github.com/tallywheel/tallywheel/frame/line"
	"github.com/tallywheel/tallywheel/frame/modbus"
	"github.com/tallywheel/tallywheel/frame/raw"
	"github.com/tallywheel/tallywheel/frame/slip"
	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/frame/ubx"
)

// MaxBytes is the longest frame that any framing may be set to: a quarter of a port's buffer.
const MaxBytes = 16 << 10

// Config names a framing and its settings. Settings that a framing does not have must be zero.
type Config struct {
	Kind      string        // one of Names
	Max       int           // longest frame in bytes; 0 means the framing's default
	Gap       time.Duration // raw: the silence that ends a chunk
	Prefix    int           // length: bytes of the length field
	Little    bool          // length: little-endian
	Inclusive bool          // length: the length counts its own bytes
	Check     frame.Check   // cobs, slip, length: modbus, ccitt; line: nmea
	Baud      int           // modbus: rate of the line, 0 if unknown
	CharBits  int           // modbus: bits a character takes on the line, start, parity and stop bits included
}

// String is the framing with its settings: a name, or as "length,prefix=4,check=ccitt". What the
// line adds is not in it.
func (cfg Config) String() string {
	text := cfg.Kind
	for _, s := range []struct {
		name  string
		set   bool
		value any
	}{
		{"max", cfg.Max != 0, cfg.Max},
		{"gap", cfg.Gap != 0, cfg.Gap},
		{"prefix", cfg.Prefix != 0, cfg.Prefix},
		{"endian", cfg.Little, "little"},
		{"inclusive", cfg.Inclusive, true},
		{"check", cfg.Check != frame.NoCheck, cfg.Check},
	} {
		if s.set {
			text += fmt.Sprintf(",%s=%v", s.name, s.value)
		}
	}
	return text
}

// Names lists the framings.
func Names() []string {
	return []string{"tally128", "modbus", "cobs", "slip", "line", "ubx", "length", "raw"}
}

// New opens the framing that cfg names.
func New(cfg Config) (frame.Decoder, error) {
	if err := cfg.fits(); err != nil {
		return nil, err
	}
	switch cfg.Kind {
	case "tally128":
		return &tally128.Decoder{}, nil
	case "modbus":
		return modbus.New(cfg.Baud, cfg.CharBits), nil
	case "cobs":
		return cobs.New(cfg.Max, cfg.Check), nil
	case "slip":
		return slip.New(cfg.Max, cfg.Check), nil
	case "line":
		return line.New(cfg.Max, cfg.Check), nil
	case "ubx":
		return ubx.New(cfg.Max), nil
	case "length":
		d, err := length.New(length.Config{
			Prefix: cfg.Prefix, LittleEndian: cfg.Little, Inclusive: cfg.Inclusive, Max: cfg.Max, Check: cfg.Check,
		})
		if err != nil {
			return nil, fmt.Errorf("frame length: %w", err)
		}
		return d, nil
	default: // raw: fits has checked the name
		return raw.New(cfg.Max, cfg.Gap), nil
	}
}

// fits reports a setting that is out of range or not one of the framing's.
func (cfg Config) fits() error {
	if !slices.Contains(Names(), cfg.Kind) {
		return fmt.Errorf("frame %q: want one of %s", cfg.Kind, strings.Join(Names(), ", "))
	}
	for _, s := range []struct {
		name  string
		set   bool
		kinds string
	}{
		{"max", cfg.Max != 0, "cobs slip line ubx length raw"},
		{"gap", cfg.Gap != 0, "raw"},
		{"prefix", cfg.Prefix != 0, "length"},
		{"endian", cfg.Little, "length"},
		{"inclusive", cfg.Inclusive, "length"},
		{"check nmea", cfg.Check == frame.CheckNMEA, "line"},
		{"check modbus or ccitt", cfg.Check == frame.CheckModbus || cfg.Check == frame.CheckCCITT, "cobs slip length"},
	} {
		if s.set && !slices.Contains(strings.Fields(s.kinds), cfg.Kind) {
			return fmt.Errorf("frame %s: %s is a setting of %s", cfg.Kind, s.name,
				strings.ReplaceAll(s.kinds, " ", ", "))
		}
	}
	if cfg.Max != 0 && (cfg.Max < 8 || cfg.Max > MaxBytes) {
		return fmt.Errorf("frame %s: max %d: want 8 to %d bytes", cfg.Kind, cfg.Max, MaxBytes)
	}
	if cfg.Gap < 0 || cfg.Gap > time.Minute {
		return fmt.Errorf("frame %s: gap %v: want up to 1m", cfg.Kind, cfg.Gap)
	}
	return nil
}

// Describe reads what the framing of that name says about a stored frame: its number and the
// device's time. Whoever has the decoder asks it by [frame.Numbered] instead.
func Describe(kind string, data []byte) frame.Frame {
	if n, ok := numbered()[kind]; ok {
		if f, ok := n.Number(data); ok {
			return f
		}
	}
	return frame.Frame{Data: data}
}

// numbered holds a decoder of each framing that numbers its frames.
var numbered = sync.OnceValue(func() map[string]frame.Numbered {
	all := map[string]frame.Numbered{}
	for _, kind := range Names() {
		if d, err := New(Config{Kind: kind}); err == nil {
			if n, ok := d.(frame.Numbered); ok {
				all[kind] = n
			}
		}
	}
	return all
})
