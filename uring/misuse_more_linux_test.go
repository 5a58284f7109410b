package uring_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/tallywheel/tallywheel/uring"
	"golang.org/x/sys/unix"
)

// TestCutDatagramsFromAStock: with MSG_TRUNC the result is the length of the datagram, and not what
// came. Buffers that the kernel had never taken were counted as received, handed out, and given
// back a second time; so it wrote to pieces that the caller held.
func TestCutDatagramsFromAStock(t *testing.T) {
	const n, size = 16, 100
	stocks(t, n, size, func(t *testing.T, r *uring.Ring, g *uring.BufferRing) {
		in, out := socketsOf(t, unix.SOCK_DGRAM)
		long := string(bytes.Repeat([]byte("D"), 10*size))
		var op uring.Op
		const trunc = unix.MSG_TRUNC
		cut := map[string]func() *uring.Op{
			"a bundle":            func() *uring.Op { return op.RecvFrom(in, g).Bundle().Flags(trunc) },
			"a bundle, flags":     func() *uring.Op { return op.RecvFrom(in, g).Flags(trunc).UpTo(2 * size).Bundle() },
			"bundles, repeatedly": func() *uring.Op { return op.RecvEach(in, g).Bundle().Flags(trunc) },
			"one":                 func() *uring.Op { return op.RecvFrom(in, g).Flags(trunc) },
			"a part":              func() *uring.Op { return op.RecvFrom(in, g).UpTo(4).Flags(trunc) },
			"repeatedly":          func() *uring.Op { return op.RecvEach(in, g).Flags(trunc) },
		}
		for name, fill := range cut {
			if err := r.Push(fill()); err != nil {
				continue // it says so
			}
			send(t, out, long)
			reap(t, r, 1)
			if op.Res != int32(len(long)) {
				t.Errorf("%s: %d, want the length of the datagram", name, op.Res)
			}
			taken, want := 0, size
			if name == "a part" {
				want = 4
			}
			for p, ok := op.Picked(); ok; p, ok = op.Picked() {
				if taken++; string(p.Bytes) != long[:want] {
					t.Errorf("%s: %d bytes came, want %d", name, len(p.Bytes), want)
				}
				p.Give()
			}
			if taken != 1 {
				t.Errorf("%s: %d pieces", name, taken)
			}
			if op.More() {
				do2(t, r, &op, new(uring.Op).Cancel(&op))
			}
			if g.Free() != n {
				t.Errorf("%s: %d buffers are free", name, g.Free())
			}
		}
		var pieces []uring.Piece
		for i := range n {
			var op uring.Op
			send(t, out, fmt.Sprintf("%100d", i))
			do(t, r, op.RecvFrom(in, g))
			p, ok := op.Picked()
			if !ok {
				t.Fatalf("datagram %d: %v", i, op.Err())
			}
			pieces = append(pieces, p)
		}
		for i, p := range pieces {
			if want := fmt.Sprintf("%100d", i); string(p.Bytes) != want {
				t.Errorf("piece %d is %q", i, bytes.TrimSpace(p.Bytes))
			}
		}
	})
}
