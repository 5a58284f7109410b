package tap

import (
	"os"
	"path/filepath"
	"syscall"

	"github.com/tallywheel/tallywheel/config"
)

// The log of a tap that keeps nothing.
const (
	memorySegment  config.Size = 4 << 20
	memorySegments             = 3
	memoryRoom                 = 64 << 20 // free bytes that make a file system in memory good enough
)

// memory is a file system in memory that every Linux has; containers may have a small one.
const memory = "/dev/shm"

// memoryPattern names the folders there.
const memoryPattern = "tallywheel-tap-*"

// memoryDir makes a folder for a log that is not kept: in memory, or where temporary files are.
func memoryDir() (string, error) {
	base := os.TempDir()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memory, &fs); err == nil && uint64(fs.Bavail)*uint64(fs.Bsize) >= memoryRoom {
		base = memory
	}
	dir, err := os.MkdirTemp(base, memoryPattern)
	if err != nil && base != os.TempDir() {
		dir, err = os.MkdirTemp("", memoryPattern)
	}
	if err == nil {
		sweep(filepath.Dir(dir))
	}
	return dir, err
}

// sweep removes what taps have left that were killed: the lock of their log is free.
func sweep(base string) {
	left, _ := filepath.Glob(filepath.Join(base, memoryPattern)) // the pattern is right
	for _, dir := range left {
		lock, err := os.OpenFile(filepath.Join(dir, "LOCK"), os.O_RDWR, 0)
		if err != nil {
			continue // another user's, or not a log yet
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(dir) // what is left is left for the next tap
		}
		_ = lock.Close()
	}
}
