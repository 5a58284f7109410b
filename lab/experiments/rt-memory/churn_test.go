package rtmemory

import "testing"

// TestArena: blocks do not overlap, end at the bound, and all come back at once.
func TestArena(t *testing.T) {
	a := newArena().(*arena)
	x, y := a.alloc(13), a.alloc(1)
	for i := range x {
		x[i] = 1
	}
	if len(y) != 8 || y[0] != 0 || cap(x) != len(x) {
		t.Errorf("blocks of %d and %d bytes touch: %v", cap(x), len(y), y)
	}
	if b := a.alloc(bound - 24); b == nil {
		t.Error("a block that ends at the bound is refused")
	}
	if b := a.alloc(bound); b != nil {
		t.Error("a block beyond the bound")
	}
	a.reset()
	if a.live() != 0 || len(a.alloc(bound)) != bound {
		t.Error("a reset has not given all back")
	}
}

// TestChurn: a heap keeps what the device keeps, an arena no more than that; neither fails.
func TestChurn(t *testing.T) {
	for name, m := range map[string]memory{"heap": &heap{}, "arena": newArena()} {
		s := sizes{seed: 88172645463325252}
		for range 3 * phase { // small ones, both, and large ones
			if !m.step(&s) {
				t.Fatalf("%s: an allocation failed", name)
			}
			if m.live() > kept {
				t.Fatalf("%s: %d bytes live", name, m.live())
			}
		}
		if h, ok := m.(*heap); ok {
			sum := 0
			for _, b := range h.slot {
				sum += len(b)
			}
			if sum != h.used || sum < kept/2 {
				t.Errorf("%d bytes live, counted as %d", sum, h.used)
			}
		}
	}
}

// TestSizes: each quarter of an hour has those that it should have.
func TestSizes(t *testing.T) {
	s := sizes{seed: 88172645463325252}
	for i := range 4 * phase {
		n := s.next()
		small, large := n >= 16 && n < 256, n >= 1024 && n < 8192
		if at := i / phase; at == 0 && !small || at == 2 && !large || !small && !large {
			t.Fatalf("%d: %d bytes", i, n)
		}
	}
}
