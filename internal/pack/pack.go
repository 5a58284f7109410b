// Package pack writes fields to bytes, and reads them, by one description of both: a function that
// names each field of a type by a call. [Seal] writes what it describes, [Open] reads it.
//
// Numbers are varints of package encoding/binary. What is read is bounded by its bytes: a list
// takes at least one for each element.
package pack

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// sumBytes is the length of the CRC-32C, little-endian, behind what it is of.
const sumBytes = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Overhead is how many bytes Seal adds.
const Overhead = 1 + sumBytes

// ErrBad is the error of bytes that Seal has not given, or not for that description.
var ErrBad = errors.New("damaged, or of another version")

// Coder writes fields, or reads them.
type Coder struct {
	b       []byte
	reading bool
	bad     bool // what was read is no such field: all that follow stay as they are
}

// Reading reports whether fields are read.
func (c *Coder) Reading() bool { return c.reading }

// Refuse says that what was read cannot be.
func (c *Coder) Refuse() { c.bad = true }

// IsBad reports whether what was read so far cannot be.
func (c *Coder) IsBad() bool { return c.bad }

// Seal is what describe writes, between a version and a CRC.
func Seal(version byte, describe func(*Coder)) []byte {
	c := Coder{b: []byte{version}}
	describe(&c)
	return binary.LittleEndian.AppendUint32(c.b, crc32.Checksum(c.b, castagnoli))
}

// Open reads what Seal gave. After an error, which is [ErrBad], what was described may be read in
// part.
func Open(version byte, b []byte, describe func(*Coder)) error {
	n := len(b) - sumBytes
	if n < 1 || b[0] != version || crc32.Checksum(b[:n], castagnoli) != binary.LittleEndian.Uint32(b[n:]) {
		return ErrBad
	}
	c := Coder{b: b[1:n], reading: true}
	if describe(&c); c.bad || len(c.b) > 0 {
		return ErrBad
	}
	return nil
}

// Size is how many bytes describe writes.
func Size(describe func(*Coder)) int {
	var c Coder
	describe(&c)
	return len(c.b)
}

// Natural is for counts and numbers.
func Natural[T ~uint32 | ~uint64](c *Coder, fields ...*T) {
	for _, p := range fields {
		if !c.reading {
			c.b = binary.AppendUvarint(c.b, uint64(*p))
			continue
		}
		v, n := binary.Uvarint(c.b)
		if c.took(n) && uint64(T(v)) == v {
			*p = T(v)
		} else {
			c.bad = true
		}
	}
}

// Signed is for times and durations.
func Signed[T ~int64](c *Coder, fields ...*T) {
	for _, p := range fields {
		if !c.reading {
			c.b = binary.AppendVarint(c.b, int64(*p))
			continue
		}
		v, n := binary.Varint(c.b)
		if c.took(n) {
			*p = T(v)
		}
	}
}

// took takes n bytes from the front; where there are none, n says so by not being above 0.
func (c *Coder) took(n int) bool {
	if c.bad || n <= 0 {
		c.bad = true
		return false
	}
	c.b = c.b[n:]
	return true
}

// Near is a number that is most often close to another, which is there already. Others may read it
// while it is written.
func (c *Coder) Near(p *uint64, other uint64) {
	by := int64(*p - other)
	if Signed(c, &by); c.reading {
		*p = other + uint64(by)
	}
}

// Flags are at most eight.
func (c *Coder) Flags(fields ...*bool) {
	var all byte
	for i, p := range fields {
		if *p {
			all |= 1 << i
		}
	}
	if !c.reading {
		c.b = append(c.b, all)
		return
	}
	if len(c.b) == 0 {
		c.bad = true
		return
	}
	all, c.b = c.b[0], c.b[1:]
	c.bad = c.bad || all>>len(fields) != 0
	for i, p := range fields {
		*p = all>>i&1 == 1
	}
}

// Text is a string.
func (c *Coder) Text(p *string) { text(c, p) }

// Bytes are read as a copy.
func (c *Coder) Bytes(p *[]byte) { text(c, p) }

func text[T ~string | ~[]byte](c *Coder, p *T) {
	n := uint64(len(*p))
	Natural(c, &n)
	if !c.reading {
		c.b = append(c.b, *p...)
		return
	}
	if c.bad || n > uint64(len(c.b)) {
		c.bad = true
		return
	}
	*p, c.b = T(string(c.b[:n])), c.b[n:]
}

// List is elements that take at least a byte each.
func List[E any](c *Coder, all *[]E, each func(*E)) {
	n := uint64(len(*all))
	Natural(c, &n)
	if !c.reading {
		for i := range *all {
			each(&(*all)[i])
		}
		return
	}
	for *all = nil; n > 0 && !c.bad; n-- {
		var e E
		each(&e)
		*all = append(*all, e)
	}
}

// Optional is what may be missing.
func Optional[E any](c *Coder, p **E, each func(*E)) {
	isThere := *p != nil
	if c.Flags(&isThere); !isThere {
		return
	}
	if c.reading {
		*p = new(E)
	}
	each(*p)
}
