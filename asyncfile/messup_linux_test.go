package asyncfile

import (
	"math/rand/v2"
	"sync"
	"syscall"

	"github.com/tallywheel/tallywheel/uring"
)

// messUp returns what makes a backend's calls short and interrupted; nil where there are no calls
// to mess up.
func messUp(b Backend, rng *rand.Rand) func(File) {
	var mu sync.Mutex
	return func(f File) {
		switch f := f.(type) {
		case *plain:
			f.fast, f.f = nil, &messy{raw: f.f, rng: rand.New(rand.NewPCG(rng.Uint64(), 0))}
		case *window:
			f.plain.fast, f.plain.f = nil, &messy{raw: f.plain.f, rng: rand.New(rand.NewPCG(rng.Uint64(), 0))}
		case *ringFile:
			f.fast, f.f = nil, &messy{raw: f.f, rng: rand.New(rand.NewPCG(rng.Uint64(), 0))}
			f.script = &script{
				short: func(_ *uring.Op, n int) int {
					mu.Lock()
					defer mu.Unlock()
					if rng.IntN(2) == 0 {
						return 1 + rng.IntN(n)
					}
					return n
				},
				verdict: func(op *uring.Op) {
					mu.Lock()
					defer mu.Unlock()
					switch { // as if it had not been done: to do it again is harmless
					case op.Code() == uring.OpFsync || rng.IntN(4) > 0:
					case rng.IntN(2) == 0:
						op.Res = -int32(syscall.EINTR)
					default:
						op.Res = -int32(syscall.EAGAIN)
					}
				},
			}
		}
	}
}
