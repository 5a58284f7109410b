package startup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// outOfCache is files that are not to be in the page cache.
type outOfCache []*os.File

// evicted opens files, one a line.
func evicted(lines string) (o outOfCache, err error) {
	for path := range strings.FieldsFuncSeq(lines, func(r rune) bool { return r == '\n' }) {
		f, err := os.Open(path)
		if err != nil {
			o.close()
			return nil, err
		}
		o = append(o, f)
	}
	return o, nil
}

func (o outOfCache) evict() error {
	for _, f := range o {
		if err := sys.DropCache(f); err != nil {
			return err
		}
		share, err := sys.Cached(f)
		if err != nil {
			return err
		}
		if share > 0 {
			return fmt.Errorf("%.0f %% of %s stays in the page cache: name a folder on a disk by --dir", 100*share,
				filepath.Base(f.Name()))
		}
	}
	return nil
}

func (o outOfCache) close() {
	for _, f := range o {
		_ = f.Close()
	}
}
