package sys

import (
	"path/filepath"
	"testing"
)

// What is not there yet is on the file system of the nearest folder above it.
func TestFileSystem(t *testing.T) {
	for _, path := range []string{"/proc", "/proc/none", "/proc/none/below", "/proc/self/none", "/proc/../proc/none"} {
		if kernel, memory := FileSystem(path); kernel != "proc" || memory != "" {
			t.Errorf("%s: %q, %q; want proc", path, kernel, memory)
		}
	}
	if kernel, _ := FileSystem("/sys/none"); kernel != "sysfs" {
		t.Errorf("/sys/none: %q; want sysfs", kernel)
	}
	if kernel, _ := FileSystem(filepath.Join(t.TempDir(), "none", "below")); kernel != "" {
		t.Errorf("a folder for files: %q", kernel)
	}
	if kernel, memory := FileSystem("/dev/shm/none"); kernel != "" || memory != "tmpfs" {
		t.Errorf("/dev/shm: %q, %q; want tmpfs", kernel, memory)
	}
}
