//go:build !amd64

package crc16

const (
	clmulMin = 1 << 30
	hasCLMUL = false
)

type folding struct{}

var (
	foldModbus, foldCCITT folding
	barrettModbus         folding
)

func barrett(_, _ uint64, _ *folding) uint16 { panic("crc16: no carry-less multiplication here") }

func clmul(*byte, int, uint64, *folding) (lo, hi uint64) {
	panic("crc16: no carry-less multiplication here")
}
