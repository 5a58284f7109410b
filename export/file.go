package export

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// ToFile has write make a file, which has its name only once it is whole and on the disk: until
// then it is a hidden file beside it, which is removed where write fails, and which a kill leaves.
// A file that had the name is replaced. What is no file, as a device or a pipe, is written to as it
// is.
func ToFile(path string, write func(io.Writer) error) (err error) {
	if real, err := filepath.EvalSymlinks(path); err == nil { // the link stays, and leads to the new file
		path = real
	}
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		return toDevice(path, st, write)
	}
	dir, name := filepath.Split(path)
	part := filepath.Join(dir, "."+name+"."+rand.Text()[:8]+".part")
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	if err = write(f); err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		if gone := os.Remove(part); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
		return fmt.Errorf("%w; %s was not made", err, path)
	}
	return sys.SyncDir(filepath.Dir(path))
}

func toDevice(path string, st fs.FileInfo, write func(io.Writer) error) error {
	if st.IsDir() {
		return fmt.Errorf("%s is a folder; name a file", path)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	err = write(f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
