package serial

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"testing"
)

// prng is a bcryptprimitives.dll, from which the Go runtime has its random numbers and which wine
// has had since 9. It holds no code: its one export, ProcessPrng, leads to a function of advapi32
// that takes the same. The file is headers of 512 bytes, then the section that they describe: the
// table of exports, as the format of PE files has it.
func prng(t *testing.T) []byte {
	t.Helper()
	const (
		header = 64 // where the headers begin: behind the DOS one
		file   = 0x200
		at     = 0x1000 // of the section in memory
		tables = 40     // size of the directory, behind which the tables follow
	)
	var section bytes.Buffer
	put := func(b *bytes.Buffer, v any) {
		if err := binary.Write(b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	dll, function, target := "bcryptprimitives.dll\x00", "ProcessPrng\x00", "advapi32.SystemFunction036\x00"
	texts := uint32(at + tables + 4 + 4 + 2)
	name, to := texts+uint32(len(dll)), texts+uint32(len(dll)+len(function))
	put(&section, []uint32{
		0, 0, 0, texts, 1 /* first ordinal */, 1, 1 /* functions, names */, at + tables,
		at + tables + 4, at + tables + 8,
	})
	put(&section, []uint32{to, name}) // an address within the exports is the name of another function
	put(&section, uint16(0))
	section.WriteString(dll + function + target)

	var b bytes.Buffer
	dos := make([]byte, header)
	copy(dos, "MZ")
	dos[60] = header
	b.Write(dos)
	b.WriteString("PE\x00\x00")
	optional := pe.OptionalHeader64{
		Magic: 0x20b, SizeOfInitializedData: file, ImageBase: 0x180000000, SectionAlignment: at, FileAlignment: file,
		MajorOperatingSystemVersion: 6, MajorSubsystemVersion: 6, SizeOfImage: 2 * at, SizeOfHeaders: file,
		Subsystem: pe.IMAGE_SUBSYSTEM_WINDOWS_CUI, DllCharacteristics: pe.IMAGE_DLLCHARACTERISTICS_NX_COMPAT,
		NumberOfRvaAndSizes: 16,
	}
	optional.DataDirectory[pe.IMAGE_DIRECTORY_ENTRY_EXPORT] = pe.DataDirectory{
		VirtualAddress: at,
		Size:           uint32(section.Len()),
	}
	put(&b, pe.FileHeader{
		Machine: pe.IMAGE_FILE_MACHINE_AMD64, NumberOfSections: 1, SizeOfOptionalHeader: uint16(binary.Size(optional)),
		Characteristics: pe.IMAGE_FILE_EXECUTABLE_IMAGE | pe.IMAGE_FILE_LARGE_ADDRESS_AWARE | pe.IMAGE_FILE_DLL,
	})
	put(&b, optional)
	put(&b, pe.SectionHeader32{
		Name: [8]uint8([]byte(".edata\x00\x00")), VirtualSize: uint32(section.Len()), VirtualAddress: at,
		SizeOfRawData: file, PointerToRawData: file,
		Characteristics: pe.IMAGE_SCN_CNT_INITIALIZED_DATA | pe.IMAGE_SCN_MEM_READ,
	})
	return append(append(b.Bytes(), make([]byte, file-b.Len())...),
		append(section.Bytes(), make([]byte, file-section.Len())...)...)
}
