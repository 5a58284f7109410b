package config

import (
	"fmt"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/serial"
)

// Aliases reports serial ports that are one device under two names, as they stand in /dev now: it
// could be read by one of the two sources only. That is no error of the file: links change, and
// the other sources are to be recorded. A port that is not there has no alias.
func (c Config) Aliases() (p Problems) {
	type name struct{ where, text string }
	seen := map[sys.Device]name{}
	for i, s := range c.Sources {
		if s.Serial == nil {
			continue
		}
		device, path, err := serial.Device(s.Serial.Port)
		if err != nil {
			continue
		}
		n := name{fmt.Sprintf("sources[%d].serial.port", i), s.Serial.Port}
		if first, ok := seen[device]; ok {
			p.add(n.where, "%q and %q, of %s, are names of one device, %s: take one of the two out", n.text, first.text,
				first.where, path)
			continue
		}
		seen[device] = n
	}
	return p
}
