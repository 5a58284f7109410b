// Package board measures on a board, or on one that QEMU emulates: how late a cell and a program in
// C wake up there, what a switch costs, and how long it takes from the kernel's start to the first
// line of a program that is /init.
//
//	host                                        board
//	Run ── kernel, initramfs ──▶ QEMU ────────▶ our program, as /init: Inside
//	recorder ◀── terminal (pty) ◀── UART ◀───── lines of JSON, and whatever the kernel says
//	Run ◀── log and sheet
//
// The emulated board is QEMU's virt with one Cortex-A7, whose time goes by instructions, 8 ns each:
// nothing of the host is in it, so that a boot is the same each time, to the last byte that it
// prints. What that hides is shown by boots with another seed each, which is where the kernel's
// random numbers come from, and with them the places of programs in memory. Caches, memory and
// flash are not emulated: their figures are those of a real board alone.
//
// The lines are numbered and have an end, and they come through this project's own recorder, as
// those of any device: [Run] reads them from its log, and says what the books say.
//
// The same machine, and the archive of its files, serve the tests with real drivers (e2e/guest).
package board
