package archive

import (
	"os"
	"path/filepath"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/seglog"
)

// maxSide is the most bytes of a file beside the log that is read whole: far more than the sheet of
// as many devices as are followed takes.
const maxSide = 256 << 20

// openSide opens a file beside the log, if it is an ordinary one.
func openSide(path string, flag int) (*os.File, error) {
	return sys.OpenOrdinary(path, flag, seglog.FilePerm)
}

// readSide reads a whole file beside the log.
func readSide(path string) ([]byte, error) { return sys.ReadOrdinary(path, maxSide) }

// OpenHistory opens the sheets of the starts that have ended on the log in dir.
func OpenHistory(dir string) (*os.File, error) {
	return openSide(filepath.Join(dir, HistoryFile), os.O_RDONLY)
}
