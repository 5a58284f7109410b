package proof

import (
	"crypto/sha256"
	"testing"
)

// Two messages of any length, also unlike ones, have the hashes that the library finds.
func TestTwoAtOnceAreTheLibrarys(t *testing.T) {
	rng := rngOf(t)
	a, b := make([]byte, 3000), make([]byte, 3000)
	for i := range a {
		a[i], b[i] = byte(rng.Uint32()), byte(rng.Uint32())
	}
	try := func(n, m int) {
		t.Helper()
		if x, y := sumBoth(a[:n], b[:m]); x != sha256.Sum256(a[:n]) || y != sha256.Sum256(b[:m]) {
			t.Fatalf("of %d and %d bytes: %x, %x", n, m, x, y)
		}
	}
	for n := range 300 {
		try(n, n)
		try(n, 300-n)
		try(2048+n, 2100)
	}
	for range 1000 {
		try(rng.IntN(len(a)), rng.IntN(len(b)))
	}
}

// BenchmarkTwo is what a byte of a page costs, by two at once and by one.
func BenchmarkTwo(b *testing.B) {
	p, q := make([]byte, pageBytes), make([]byte, pageBytes)
	b.Run("two", func(b *testing.B) {
		b.SetBytes(2 * pageBytes)
		for range b.N {
			sumBoth(p, q)
		}
	})
	b.Run("one", func(b *testing.B) {
		b.SetBytes(pageBytes)
		for range b.N {
			sha256.Sum256(p)
		}
	})
}
