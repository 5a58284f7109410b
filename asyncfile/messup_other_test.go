//go:build !linux

package asyncfile

import "math/rand/v2"

// messUp returns what makes a backend's calls short and interrupted.
func messUp(_ Backend, rng *rand.Rand) func(File) {
	return func(f File) {
		if p, ok := f.(*plain); ok {
			p.fast, p.f = nil, &messy{raw: p.f, rng: rand.New(rand.NewPCG(rng.Uint64(), 0))}
		}
	}
}
