package sys

import "unsafe"

// AddressOf is where the bytes lie, for comparing with the address of a fault.
func AddressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
