package archive

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/ledger"
)

// unsavedFile stands beside the sheet while that cannot be renewed, as on a full disk. It is empty,
// for a disk without a free byte mostly has room for a name: so the next start knows that it does
// not know all, though the sheet that it finds is whole.
const unsavedFile = currentFile + ".unsaved"

// MarkUnsaved notes in dir that the sheet could not be renewed, or was.
func MarkUnsaved(dir string, unsaved bool) error {
	path := filepath.Join(dir, unsavedFile)
	if unsaved {
		return writeSide(path, os.O_CREATE, nil)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return sys.SyncDir(dir)
}

// Unsaved is when the last sheet in dir could not be renewed first; 0: it is not known that it
// could not.
func Unsaved(dir string) ledger.Time {
	st, err := os.Lstat(filepath.Join(dir, unsavedFile))
	if err != nil {
		return 0
	}
	return ledger.Time(st.ModTime().UnixNano())
}
