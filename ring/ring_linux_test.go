package ring

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/tallywheel/tallywheel/internal/testenv"
	"pgregory.net/rapid"
)

func open(t testing.TB, size int) *Ring {
	t.Helper()
	r, err := New(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func TestAgainstSlice(t *testing.T) {
	r := open(t, 1)
	testenv.Check(t, func(t *rapid.T) {
		r.Release(r.Len())
		var model []byte
		next := byte(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.IntRange(0, 4).Draw(t, "rewind") == 0 {
				r.Rewind()
			}
			if rapid.Bool().Draw(t, "produce") {
				space := r.Space()
				if len(space) != r.Size()-len(model) {
					t.Fatalf("%d bytes free, want %d", len(space), r.Size()-len(model))
				}
				n := rapid.IntRange(0, len(space)).Draw(t, "n")
				for i := range n {
					space[i] = next
					model = append(model, next)
					next++
				}
				r.Publish(n)
			} else {
				n := rapid.IntRange(0, len(model)).Draw(t, "n")
				r.Release(n)
				model = model[n:]
			}
			if !bytes.Equal(r.View(), model) {
				t.Fatalf("view of %d bytes differs from the model's %d", r.Len(), len(model))
			}
		}
	})
}

func TestProducerAndConsumer(t *testing.T) {
	const words = 200_000
	r := open(t, 4096)
	go func() {
		rng := rand.New(rand.NewPCG(1, 1))
		for sent := uint64(0); sent < words; {
			space := r.Space()
			n := min(len(space)/8, 1+rng.IntN(100), int(words-sent))
			if n == 0 {
				runtime.Gosched()
				continue
			}
			for i := range n {
				binary.LittleEndian.PutUint64(space[i*8:], sent)
				sent++
			}
			r.Publish(n * 8)
		}
	}()
	for want := uint64(0); want < words; {
		view := r.View()
		if len(view) == 0 {
			runtime.Gosched()
			continue
		}
		for i := 0; i < len(view); i += 8 {
			if got := binary.LittleEndian.Uint64(view[i:]); got != want {
				t.Fatalf("read %d, want %d", got, want)
			}
			want++
		}
		r.Release(len(view))
	}
}

func TestMisuseAndBadSizes(t *testing.T) {
	r := open(t, 1)
	for name, f := range map[string]func(){
		"publish more than free": func() { r.Publish(r.Size() + 1) },
		"release more than held": func() { r.Release(1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
	for _, n := range []int{0, -1, MaxSize + 1} {
		if _, err := New(n); err == nil {
			t.Errorf("New(%d) gives no error", n)
		}
	}
}

func BenchmarkRoundOf128Bytes(b *testing.B) {
	r := open(b, 64<<10)
	b.SetBytes(128)
	for b.Loop() {
		r.Space()[0] = 1
		r.Publish(128)
		_ = r.View()[127]
		r.Release(128)
	}
}
