package sys

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// MountAsInit mounts what programs expect to find, and the first process of a machine has not yet:
// /proc, /sys, /dev and /tmp.
func MountAsInit() error {
	for _, m := range [][2]string{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp"}} {
		if err := os.MkdirAll(m[1], 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m[0], m[1], m[0], 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m[1], err)
		}
	}
	return nil
}

// PowerOff switches the machine off. It returns only where it may not.
func PowerOff() error {
	unix.Sync()
	return os.NewSyscallError("reboot", unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF))
}
