package seglog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// CheckDir says in one line why no log can be written in the directory at path, and what to do; nil
// if nothing is known against it. It makes nothing. A directory that is missing can be made, as far
// as those above it say; whether this process may make it, [Dir] finds out.
func CheckDir(path string) error {
	if path == "" { // which Clean makes the working directory
		return errNoDir
	}
	path = filepath.Clean(path)
	for at := path; ; at = filepath.Dir(at) {
		st, err := os.Stat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			if to, linkErr := os.Readlink(at); linkErr == nil {
				return fmt.Errorf("%s is a link to %s, which is not there: make that folder, mount its disk, or name another one", at, to)
			}
			if at != filepath.Dir(at) {
				continue // one above it says more
			}
			return err
		case errors.Is(err, syscall.ELOOP):
			return fmt.Errorf("%s is a link that leads to itself: remove it, or name another folder", at)
		case errors.Is(err, syscall.EIO), errors.Is(err, syscall.ESTALE):
			return fmt.Errorf("%w: the disk fails, as `dmesg` says: mount it again, or name a folder on another one", err)
		case err != nil:
			return fmt.Errorf("%w: run this as a user who may look there, or name another folder", err)
		case !st.IsDir():
			return fmt.Errorf("%s is no folder: move it away, or name another one", at)
		}
		if kernel, _ := sys.FileSystem(at); kernel != "" { // it may say that writing is allowed
			return fmt.Errorf("%s is on %s, where the kernel tells of itself and nobody makes files: name a folder on a disk", at, kernel)
		}
		switch err := sys.MayWrite(at); {
		case errors.Is(err, syscall.EROFS):
			return fmt.Errorf("%s is on a file system that is mounted read-only: mount it for writing, or name another folder", at)
		case errors.Is(err, syscall.EACCES) && at == path:
			return fmt.Errorf("user %d may not write in %s: run this as its owner, or give it to the user: chown %[1]d %[2]s", os.Geteuid(), at)
		}
		return nil
	}
}
