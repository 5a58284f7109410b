package filetlb

import (
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"syscall"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/lab/contestant"
)

// touchAtRandom reads one byte at random places of the first mib MiB of a file that is mapped, and
// whose pages were all touched before.
func touchAtRandom(t *contestant.Turn) error {
	f, err := os.Open(t.Text("file"))
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := syscall.Mmap(int(f.Fd()), 0, t.Int("mib", 1)<<20, syscall.PROT_READ,
		syscall.MAP_SHARED|syscall.MAP_POPULATE)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	if err := sys.AdviseRandom(b); err != nil {
		return err
	}
	var sum byte
	for i := 0; i < len(b); i += os.Getpagesize() {
		sum += b[i]
	}
	rng := rand.New(rand.NewPCG(1, 1))
	const touches = 1 << 16
	err = contestant.Repeat(t, touches, 0, func() {
		for range touches {
			sum += b[rng.Uint64N(uint64(len(b)))]
		}
	})
	runtime.KeepAlive(sum)
	return errors.Join(err, syscall.Munmap(b))
}
