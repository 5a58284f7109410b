package lab

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// binPrefix begins the name of the folder of what was built, and of what compilers put down.
const binPrefix = "tallywheel-lab-"

// sweep removes the folders that benches left that were killed. Nobody uses one: whoever does has
// the lock.
func sweep() error {
	left, err := filepath.Glob(filepath.Join(os.TempDir(), binPrefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range left {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() ||
			info.Sys().(*syscall.Stat_t).Uid != uint32(os.Getuid()) {
			continue // somebody else's, who may have a lock that we cannot see
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}

// folderPrefix begins the name of an experiment's folder, in the folder that the user has named.
const folderPrefix = "tallywheel-"

// sweepFolders removes the folders of experiments in dir whose bench was killed: nobody holds them.
// Other things may have such names: a folder of an experiment has its name, and a number.
func sweepFolders(dir string) error {
	for _, e := range Experiments() {
		left, err := filepath.Glob(filepath.Join(escape(cmp.Or(dir, ".")), folderPrefix+e.Name+"-*"))
		if err != nil {
			return err
		}
		for _, path := range left {
			number := path[strings.LastIndexByte(path, '-')+1:]
			if info, err := os.Lstat(path); err != nil || !info.IsDir() || strings.Trim(number, "0123456789") != "" ||
				!strings.HasSuffix(path, folderPrefix+e.Name+"-"+number) ||
				info.Sys().(*syscall.Stat_t).Uid != uint32(os.Getuid()) {
				continue
			}
			f, err := holdFolder(path)
			if err != nil {
				continue // somebody measures there
			}
			if err := errors.Join(os.RemoveAll(path), f.Close()); err != nil {
				return err
			}
		}
	}
	return nil
}

// escape makes a pattern of a path that means this path alone.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// holdFolder says to all other benches that a folder is in use, until the file is closed or this
// process has ended. It fails where another one holds it.
func holdFolder(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if _, err := sys.Lock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
