package sys

import "io/fs"

// Links is not known here.
func Links(fs.FileInfo) uint64 { return 1 }
