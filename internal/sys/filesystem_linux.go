package sys

import (
	"errors"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// kernelFS are the file systems by which the kernel tells of itself, by their magic of statfs(2).
// Their folders may look as if one could write there; no program makes a file in them.
var kernelFS = map[int64]string{
	unix.PROC_SUPER_MAGIC: "proc", unix.SYSFS_MAGIC: "sysfs", unix.CGROUP_SUPER_MAGIC: "cgroup",
	unix.CGROUP2_SUPER_MAGIC: "cgroup2", unix.DEVPTS_SUPER_MAGIC: "devpts", unix.DEBUGFS_MAGIC: "debugfs",
	unix.TRACEFS_MAGIC: "tracefs", unix.SECURITYFS_MAGIC: "securityfs", unix.SELINUX_MAGIC: "selinuxfs",
	unix.SMACK_MAGIC: "smackfs", unix.BPF_FS_MAGIC: "bpf", unix.PSTOREFS_MAGIC: "pstore",
	unix.EFIVARFS_MAGIC: "efivarfs", unix.BINFMTFS_MAGIC: "binfmt_misc", unix.NSFS_MAGIC: "nsfs",
	unix.RDTGROUP_SUPER_MAGIC: "resctrl", 0x62656570: "configfs", 0x65735543: "fusectl", 0x19800202: "mqueue",
}

// memoryFS are those whose files are in memory, devtmpfs among the tmpfs.
var memoryFS = map[int64]string{unix.TMPFS_MAGIC: "tmpfs", unix.RAMFS_MAGIC: "ramfs"}

// FileSystem says what kind of file system path is on, or will be on once it is made: kernel names
// one that holds no files, memory one whose files go with the machine's next start. Both are empty
// for all others, and where it is not known.
func FileSystem(path string) (kernel, memory string) {
	for path = filepath.Clean(path); ; path = filepath.Dir(path) {
		var s unix.Statfs_t
		err := unix.Statfs(path, &s)
		if err == nil {
			magic := int64(uint32(s.Type)) // its width and its sign differ from machine to machine
			return kernelFS[magic], memoryFS[magic]
		}
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) || path == filepath.Dir(path) {
			return "", ""
		}
	}
}
