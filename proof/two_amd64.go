package proof

import (
	"crypto/sha256"
	"encoding/binary"
)

// The instructions for SHA-256 wait for each other: two messages that go side by side take little
// longer than one.
var hasPairs = has()

// has reports whether this processor has the instructions.
func has() bool

// blocks does n ≥ 1 blocks of 64 bytes of two messages.
//
//go:noescape
func blocks(a, b *[8]uint32, p, q *byte, n int, k *[64]uint32)

// constants and start are those of FIPS 180-4: the first bits of the cube roots of 64 primes, and
// of the square roots of eight.
var (
	constants = [64]uint32{
		0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
		0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
		0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
		0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
		0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
		0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
		0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
		0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
	}
	start = [8]uint32{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}
)

const (
	blockBytes = sha256.BlockSize
	unlike     = 8 // blocks that one message may have more than the other, and be worth to go with it
)

// sumBoth is the SHA-256 of two messages.
func sumBoth(a, b []byte) (x, y Hash) {
	n, m := len(a)/blockBytes, len(b)/blockBytes
	if !hasPairs || min(n, m) == 0 || max(n, m)-min(n, m) > unlike {
		return sha256.Sum256(a), sha256.Sum256(b)
	}
	s, t, none := start, start, start
	both := min(n, m)
	blocks(&s, &t, &a[0], &b[0], both, &constants)
	if n > both {
		blocks(&s, &none, &a[both*blockBytes], &a[both*blockBytes], n-both, &constants)
	}
	if m > both {
		blocks(&t, &none, &b[both*blockBytes], &b[both*blockBytes], m-both, &constants)
	}
	var endA, endB [2 * blockBytes]byte
	n, m = end(&endA, a), end(&endB, b)
	if n == m {
		blocks(&s, &t, &endA[0], &endB[0], n, &constants)
	} else {
		blocks(&s, &none, &endA[0], &endA[0], n, &constants)
		blocks(&t, &none, &endB[0], &endB[0], m, &constants)
	}
	for i := range s {
		binary.BigEndian.PutUint32(x[4*i:], s[i])
		binary.BigEndian.PutUint32(y[4*i:], t[i])
	}
	return x, y
}

// end is the end of a message behind its whole blocks: its last bytes, a bit, zeros, and its length
// in bits. It returns how many blocks that makes.
func end(into *[2 * blockBytes]byte, of []byte) int {
	n := copy(into[:], of[len(of)/blockBytes*blockBytes:])
	into[n] = 0x80
	blocks := 1
	if n+1+8 > blockBytes {
		blocks = 2
	}
	binary.BigEndian.PutUint64(into[blocks*blockBytes-8:], uint64(len(of))*8)
	return blocks
}
