//go:build fact

// Command xsys-statx asks for a file's times by what golang.org/x/sys/unix has for statx.
package main

import (
	"github.com/tallywheel/tallywheel/lab/contestant"
	"golang.org/x/sys/unix"
)

func main() {
	contestant.Main(func(t *contestant.Turn) error {
		var st unix.Statx_t
		if err := unix.Statx(unix.AT_FDCWD, "/", 0, unix.STATX_BASIC_STATS, &st); err != nil {
			return err
		}
		return t.Answer(false, "unix.Statx fills a unix.Statx_t: / was changed %d s after 1970", st.Mtime.Sec)
	})
}
