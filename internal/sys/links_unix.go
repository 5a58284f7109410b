//go:build unix

package sys

import (
	"io/fs"
	"syscall"
)

// Links is how many names a file has.
func Links(st fs.FileInfo) uint64 {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Nlink)
	}
	return 1
}
