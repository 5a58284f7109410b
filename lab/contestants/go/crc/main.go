// Command crc is the CRC16 libraries that Go programs use.
package main

import (
	"fmt"

	howeyc "github.com/howeyc/crc16"
	"github.com/sigurn/crc16"
	"github.com/tallywheel/tallywheel/lab/contestant"
)

func main() { contestant.Main(run) }

func run(t *contestant.Turn) error {
	b := make([]byte, t.Int("bytes", 126))
	for i := range b {
		b[i] = byte(i * 7)
	}
	table := crc16.MakeTable(crc16.CRC16_MODBUS)
	sum := func() uint16 { return crc16.Checksum(b, table) }
	switch t.Name {
	case "sigurn":
	case "howeyc":
		sum = func() uint16 { return howeyc.Update(0xFFFF, howeyc.IBMTable, b) }
	default:
		return fmt.Errorf("no contestant %q", t.Name)
	}
	const count = 256
	var all uint16
	return contestant.Repeat(t, count, len(b), func() {
		for range count {
			all ^= sum()
		}
	})
}
