//go:build !amd64

package crc16

const (
	clmulMin = 1 << 30
	hasCLMUL = false
)

type folding struct{}

var foldModbus, foldCCITT folding

func clmul(*byte, int, uint64, *folding) (lo, hi uint64) {
	panic("crc16: no carry-less multiplication here")
}
