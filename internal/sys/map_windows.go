package sys

import (
	"os"
	"syscall"
	"unsafe"
)

// MapsBeyondEnd says that a mapping may be longer than its file. Windows lengthens the file
// instead.
const MapsBeyondEnd = false

// MapFile maps the first n bytes of a file, shared with it. Unmap releases the mapping.
func MapFile(f *os.File, n int, write bool) ([]byte, error) {
	prot, access := uint32(syscall.PAGE_READONLY), uint32(syscall.FILE_MAP_READ)
	if write {
		prot, access = syscall.PAGE_READWRITE, syscall.FILE_MAP_WRITE
	}
	h, err := syscall.CreateFileMapping(syscall.Handle(f.Fd()), nil, prot, uint32(uint64(n)>>32), uint32(n), nil)
	if err != nil {
		return nil, os.NewSyscallError("CreateFileMapping", err)
	}
	defer syscall.CloseHandle(h) // the view keeps it
	p, err := syscall.MapViewOfFile(h, access, 0, 0, uintptr(n))
	if err != nil {
		return nil, os.NewSyscallError("MapViewOfFile", err)
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), n), nil
}

// Unmap releases what MapFile gave.
func Unmap(b []byte) error {
	return os.NewSyscallError("UnmapViewOfFile", syscall.UnmapViewOfFile(AddressOf(b)))
}

// SyncMap writes the changed pages of a mapping towards the disk; a sync of the file waits for
// them.
func SyncMap(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	return os.NewSyscallError("FlushViewOfFile", syscall.FlushViewOfFile(AddressOf(b), uintptr(len(b))))
}

// AdviseRandom does nothing here.
func AdviseRandom([]byte) error { return nil }

// AdviseSequential does nothing here.
func AdviseSequential([]byte) error { return nil }
