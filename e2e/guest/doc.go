// Package guest tests the recorder with real drivers: in a guest of QEMU, whose kernel is Debian's,
// it reads a 16550 by the driver 8250 and an FTDI adapter by usb-serial. The devices are emulated,
// so the test has them send, overruns them, pulls them out and puts them in again; the drivers are
// those of any machine.
//
//	test ── frames ──▶ chardev (Unix socket) ──▶ UART, adapter ──▶ driver ──▶ tallywheel run
//	test ◀── JSON, a line each ── second serial port ──▶ init (package main in folder init)
//	test ── QMP: device_del, device_add
//
// The guest has no disk: its files are an initramfs that the test writes, of init, tallywheel and
// the modules. It runs by TCG, on any machine, some ten times slower than that. Package board boots
// it, and has the archive; that of ARM, with time by instructions, is what `tallywheel lab board`
// measures on, which is tested here, too.
//
// Kernels and the emulator come by make deps-board; without them the tests say so and are skipped.
package guest
