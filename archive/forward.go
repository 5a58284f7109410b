package archive

import "path/filepath"

// ForwardStore is the folder of the server that a recorder runs within itself, beside its log.
func ForwardStore(dir string) string { return filepath.Join(dir, "nats") }

// ForwardMark is the file that says how far a destination of that name has come.
func ForwardMark(dir, name string) string {
	return filepath.Join(dir, "forward", name+".json")
}
