package uring_test

import (
	"testing"

	"github.com/tallywheel/tallywheel/uring"
)

// One nop per operation, 64 in each system call: what the package and the kernel cost before
// anything is done.
func BenchmarkNop(b *testing.B) {
	for _, kind := range []struct {
		name string
		cfg  uring.Config
	}{
		{"registered", uring.Config{Locked: true, RegisterRing: true}},
		{"locked", uring.Config{Locked: true}},
		{"plain", uring.Config{}},
	} {
		b.Run(kind.name+"/depth=64", func(b *testing.B) {
			kind.cfg.Entries = 64
			r := open(b, kind.cfg)
			ops := make([]uring.Op, 64)
			b.ReportAllocs()
			b.ResetTimer()
			for done := 0; done < b.N; done += len(ops) {
				for i := range ops {
					if err := r.Push(&ops[i]); err != nil {
						b.Fatal(err)
					}
				}
				if err := r.Wait(len(ops)); err != nil {
					b.Fatal(err)
				}
				for r.Next() != nil {
				}
			}
		})
	}
}

// One read of 4 KiB from the page cache at a time, 64 in each system call.
func BenchmarkCachedRead(b *testing.B) {
	for _, registered := range []bool{false, true} {
		name := "buffer=heap"
		if registered {
			name = "buffer=registered"
		}
		b.Run(name, func(b *testing.B) {
			r := open(b, uring.Config{Entries: 64, Locked: true})
			f, _ := temp(b)
			arena, err := uring.NewArena(64, 4096)
			if err != nil {
				b.Fatal(err)
			}
			if registered {
				if err := r.RegisterArena(arena); err != nil {
					b.Fatal(err)
				}
			}
			var op uring.Op
			do(b, r, op.Write(f, uring.Wrap(make([]byte, 1<<20)), 0))
			ops, bufs := make([]uring.Op, 64), make([]*uring.Buffer, 64)
			for i := range bufs {
				bufs[i] = arena.Buffer(i)
				if !registered {
					bufs[i] = uring.Wrap(make([]byte, 4096))
				}
			}
			b.SetBytes(4096)
			b.ReportAllocs()
			b.ResetTimer()
			for done := 0; done < b.N; done += len(ops) {
				for i := range ops {
					if err := r.Push(ops[i].Read(f, bufs[i], int64(i%256)*4096)); err != nil {
						b.Fatal(err)
					}
				}
				if err := r.Wait(len(ops)); err != nil {
					b.Fatal(err)
				}
				for op := r.Next(); op != nil; op = r.Next() {
					if op.Res != 4096 {
						b.Fatal(op.Result())
					}
				}
			}
		})
	}
}
