package pack

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"testing"
	"time"
)

// thing has a field of each kind.
type thing struct {
	n      uint32
	m      uint64
	d      time.Duration
	at     uint64
	is, no bool
	name   string
	raw    []byte
	list   []uint64
	there  *uint64
	gone   *uint64
}

func (f *thing) describe(c *Coder) {
	Natural(c, &f.n)
	Natural(c, &f.m)
	Signed(c, &f.d)
	c.Near(&f.at, f.m)
	c.Flags(&f.is, &f.no)
	c.Text(&f.name)
	c.Bytes(&f.raw)
	each := func(n *uint64) { Natural(c, n) }
	List(c, &f.list, each)
	Optional(c, &f.there, each)
	Optional(c, &f.gone, each)
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	n := uint64(9)
	for _, want := range []thing{
		{},
		{
			math.MaxUint32, math.MaxUint64, math.MinInt64, 3, true, false, "name",
			[]byte{1, 2},
			[]uint64{5, math.MaxUint64},
			&n, nil,
		},
	} {
		sealed := Seal(7, want.describe)
		if got := Size(want.describe) + Overhead; got != len(sealed) {
			t.Errorf("a size of %d, want %d", got, len(sealed))
		}
		var got thing
		if err := Open(7, sealed, got.describe); err != nil {
			t.Fatal(err)
		}
		if len(got.raw) == 0 {
			got.raw = nil
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

func TestWhatCannotBeIsRefused(t *testing.T) {
	nothing := func(*Coder) {}
	var n uint32
	var is bool
	var name string
	var list []uint64
	for name, c := range map[string]struct {
		write func(*Coder)
		read  func(*Coder)
	}{
		"too large":       {func(c *Coder) { m := uint64(1 << 32); Natural(c, &m) }, func(c *Coder) { Natural(c, &n) }},
		"too many flags":  {func(c *Coder) { y := true; c.Flags(&y, &y) }, func(c *Coder) { c.Flags(&is) }},
		"a text too long": {func(c *Coder) { m := uint64(5); Natural(c, &m) }, func(c *Coder) { c.Text(&name) }},
		"a list too long": {
			func(c *Coder) { m := uint64(1 << 60); Natural(c, &m) },
			func(c *Coder) { List(c, &list, func(n *uint64) { Natural(c, n) }) },
		},
		"no flags":       {nothing, func(c *Coder) { c.Flags(&is) }},
		"no number":      {nothing, func(c *Coder) { Natural(c, &n) }},
		"more than read": {func(c *Coder) { Natural(c, &n) }, nothing},
		"refused":        {nothing, (*Coder).Refuse},
	} {
		if err := Open(1, Seal(1, c.write), c.read); !errors.Is(err, ErrBad) {
			t.Errorf("%s: %v", name, err)
		}
	}
	sealed := Seal(1, nothing)
	for _, b := range [][]byte{nil, sealed[:len(sealed)-1], append(bytes.Clone(sealed), 0), Seal(2, nothing)} {
		if err := Open(1, b, nothing); !errors.Is(err, ErrBad) {
			t.Errorf("% x: %v", b, err)
		}
	}
}

// What is written is only read: books share such numbers with the sheets that others read.
func TestNearIsOnlyReadWhileItIsWritten(t *testing.T) {
	n := uint64(7)
	read := make(chan uint64)
	go func() { read <- n }() // the race detector sees it if Seal writes n
	if b := Seal(1, func(c *Coder) { c.Near(&n, 5) }); len(b) == 0 {
		t.Error("nothing is written")
	}
	if got := <-read; got != 7 {
		t.Errorf("%d", got)
	}
}
