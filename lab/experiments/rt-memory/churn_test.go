package rtmemory

import (
	"reflect"
	"runtime"
	"testing"
)

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
	for name, m := range map[string]memory{"heap": &heap{}, "arena": newArena(), "list": newList()} {
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

// TestSlab: objects come without a value, one behind the other, and no more than there is room for;
// a reset gives all of them back.
func TestSlab(t *testing.T) {
	s := newSlab[node](2)
	for range 2 {
		a, b := s.take(), s.take()
		if a == nil || b == nil || a == b || s.take() != nil {
			t.Fatalf("of two objects %p and %p are taken", a, b)
		}
		if a.next != nil || b.data != nil {
			t.Errorf("objects have the values of those before: %v, %v", a, b)
		}
		a.next, b.data = b, []byte{1}
		s.reset()
	}
}

// TestListPointsInside: all that hangs on the list lies in its slab and its arena, whatever was
// reset before, and survives a collection; together they are as large as the bound.
func TestListPointsInside(t *testing.T) {
	l := newList().(*list)
	size := int(reflect.TypeFor[node]().Size())
	if reflect.TypeFor[uintptr]().Size() == 8 && size != nodeSize {
		t.Errorf("a node has %d bytes, counted as %d", size, nodeSize)
	}
	if all := len(l.nodes.room)*nodeSize + len(l.data.mem); all != bound {
		t.Errorf("it has %d bytes, the bound is %d", all, bound)
	}
	within := func(p, room reflect.Value, each int) bool {
		return p.Pointer() >= room.Pointer() && p.Pointer() < room.Pointer()+uintptr(room.Len()*each)
	}
	s, resets := sizes{seed: 88172645463325252}, 0
	for i := range 3 * phase {
		before := l.live()
		if !l.step(&s) {
			t.Fatalf("%d: an allocation failed", i)
		}
		if l.live() < before {
			resets++
		}
	}
	runtime.GC()
	n := 0
	for o := l.newest; o != nil; o = o.next {
		n++
		if !within(reflect.ValueOf(o), reflect.ValueOf(l.nodes.room), size) ||
			!within(reflect.ValueOf(o.data), reflect.ValueOf(l.data.mem), 1) {
			t.Fatalf("node %d points to %p and %p", n, o, o.data)
		}
		if o.data[0] != 1 || o.data[len(o.data)-1] != 1 {
			t.Fatalf("node %d has other data", n)
		}
	}
	if n != l.nodes.used || n == 0 || resets == 0 {
		t.Errorf("%d nodes hang on it, %d are taken, after %d resets", n, l.nodes.used, resets)
	}
	l.reset()
	if l.live() != 0 || l.newest != nil {
		t.Error("a reset has left something")
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
