package rtconst

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

// What the programs must have, by Go's standard library: the hash is of the checksum and of where
// U-Boot's SPL begins on a sun8i, both with the high byte first.
var (
	crc  = crc32.ChecksumIEEE([]byte("uboot-spl-v2024.07-arm64"))
	hash = sha256.Sum256(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, crc), 0x60))
)

// reader takes the lines of a program: how many ns it took to have both, the checksum and the hash
// in hexadecimal.
type reader struct{ took []int64 }

func (r *reader) Read(line string) error {
	var ns int64
	var c uint32
	var h []byte
	if n, err := fmt.Sscanf(line, "%d %x %x", &ns, &c, &h); n != 3 || err != nil {
		return fmt.Errorf("the program has printed %q: %w", line, err)
	}
	if c != crc || string(h) != string(hash[:]) {
		return fmt.Errorf("the program's constants are %08x and %x, and have to be %08x and %x", c, h, crc, hash)
	}
	r.took = append(r.took, ns)
	return nil
}

func (r *reader) Values(program string) ([]contestant.Value, error) {
	loaded, err := loadedBytes(program)
	slices.Sort(r.took)
	return []contestant.Value{
		{Metric: "constants_ns_p50", V: float64(r.took[len(r.took)/2])},
		{Metric: "loaded_bytes", V: float64(loaded)},
	}, err
}

// loadedBytes is how much of a program's file is loaded.
func loadedBytes(program string) (n uint64, err error) {
	f, err := elf.Open(program)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for _, s := range f.Sections {
		if s.Flags&elf.SHF_ALLOC != 0 && s.Type != elf.SHT_NOBITS {
			n += s.Size
		}
	}
	return n, nil
}
