package contestant

import (
	"bytes"
	"slices"
	"testing"
)

// TestPagesHaveNoShorterPeriod: a page that begins elsewhere is another one, and a long one goes on
// as the pattern does.
func TestPagesHaveNoShorterPeriod(t *testing.T) {
	p := Page(3*period + 7)
	for i := range p {
		if p[i] != p[i%period] {
			t.Fatalf("byte %d is not the pattern's", i)
		}
	}
	for _, shift := range []int{1, 512, 4096, 16384, 32768, 65536, 1 << 17} {
		if bytes.Equal(p[:512], p[shift%period:shift%period+512]) {
			t.Errorf("shifted by %d bytes it is the same", shift)
		}
	}
	if len(Page(0)) != 0 || len(Page(5)) != 5 {
		t.Error("short pages are not as long as asked for")
	}
}

// TestDigest: it is the same in whatever pieces the body comes, and another one for a body that is
// not the same.
func TestDigest(t *testing.T) {
	body := Page(10_000)
	whole := string(DigestOf(body))
	if whole != "10000 bytes, sum 80638005\n" { // those in C say the same
		t.Errorf("%q", whole)
	}
	for _, piece := range []int{1, 7, 511, 512, 513, 4096} {
		var d Digest
		for c := range slices.Chunk(body, piece) {
			_, _ = d.Write(c)
		}
		if got := string(d.Append(nil)); got != whole {
			t.Errorf("in pieces of %d: %q, want %q", piece, got, whole)
		}
	}
	for name, b := range map[string][]byte{
		"one byte less": body[:len(body)-1], "begins later": Page(10_001)[1:],
		"a piece twice": append(slices.Clone(body[:5000]), body[:5000]...), "none": nil,
	} {
		if got := string(DigestOf(b)); got == whole {
			t.Errorf("%s: the same", name)
		}
	}
}
