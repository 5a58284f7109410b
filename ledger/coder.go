package ledger

import (
	"encoding/binary"
	"maps"
	"slices"
)

// coder writes fields to the end of b, or takes them from its front. So what describes the fields
// of a type, by a call for each, is its writer and its reader in one.
type coder struct {
	b       []byte
	reading bool
	bad     bool // what was read is no such field: all that follow stay as they are
}

// natural is for counts and numbers.
func natural[T ~uint32 | ~uint64](c *coder, fields ...*T) {
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

// signed is for times and durations.
func signed[T ~int64](c *coder, fields ...*T) {
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
func (c *coder) took(n int) bool {
	if c.bad || n <= 0 {
		c.bad = true
		return false
	}
	c.b = c.b[n:]
	return true
}

// near is a number that is most often close to another, which is there already.
func (c *coder) near(p *uint64, other uint64) {
	by := int64(*p - other)
	signed(c, &by)
	*p = other + uint64(by)
}

// flags are at most eight.
func (c *coder) flags(fields ...*bool) {
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

func (c *coder) text(p *string) {
	n := uint64(len(*p))
	natural(c, &n)
	if !c.reading {
		c.b = append(c.b, *p...)
		return
	}
	if c.bad || n > uint64(len(c.b)) {
		c.bad = true
		return
	}
	*p, c.b = string(c.b[:n]), c.b[n:]
}

// byCause is counts by the cause, in its order.
func (c *coder) byCause(fields ...*map[string]uint64) {
	for _, m := range fields {
		causes := slices.Sorted(maps.Keys(*m))
		list(c, &causes, func(cause *string) {
			c.text(cause)
			n := (*m)[*cause]
			if natural(c, &n); c.reading && !c.bad {
				count(m, *cause, n)
			}
		})
	}
}

// list is elements that take at least a byte each.
func list[E any](c *coder, all *[]E, each func(*E)) {
	n := uint64(len(*all))
	natural(c, &n)
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

// optional is what may be missing.
func optional[E any](c *coder, p **E, each func(*E)) {
	isThere := *p != nil
	if c.flags(&isThere); !isThere {
		return
	}
	if c.reading {
		*p = new(E)
	}
	each(*p)
}
