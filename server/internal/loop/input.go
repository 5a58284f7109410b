package loop

import "sync"

// Lent is memory of a driver that holds what was received. It may be looked at until the call that
// brought it returns.
type Lent []byte

// GiveBack ends a loan: where [Poison] is on, whoever still looks sees nonsense.
func (b Lent) GiveBack() {
	if Poison {
		for i := range b {
			b[i] = 0xdd
		}
	}
}

// Input is what a connection has received and nobody has consumed. Its bytes are partly or wholly
// borrowed from a driver between Lend and Settle, and its own otherwise. The zero value is empty
// and holds no memory.
type Input struct {
	bytes []byte  // not consumed: the loan, or the end of own
	lent  bool    // bytes is the loan
	own   []byte  // memory of its own, from its start to its capacity
	block *[]byte // own's, if it comes from a pool
}

// blockSizes are the sizes of memory for input that are kept for later. Most input fits the first;
// the last takes what MaxHeld allows, and a receive.
var blockSizes = [...]int{4 << 10, 16 << 10, 104 << 10}

var blocks [len(blockSizes)]sync.Pool

// SmallBlock is how much input needs the least memory.
const SmallBlock = 4 << 10

// newBlock returns memory for n bytes of input, in a form that goes back to its pool without an
// allocation; nil if n is too large.
func newBlock(n int) *[]byte {
	for i, size := range blockSizes {
		if n <= size {
			if b, ok := blocks[i].Get().(*[]byte); ok {
				return b
			}
			b := make([]byte, size)
			return &b
		}
	}
	return nil
}

func freeBlock(b *[]byte) {
	for i, size := range blockSizes {
		if len(*b) == size {
			Lent(*b).GiveBack()
			blocks[i].Put(b)
		}
	}
}

// Lend adds what has been received. It borrows b if there is nothing else, and copies it behind
// what there is otherwise.
func (in *Input) Lend(b Lent) {
	if len(in.bytes) == 0 {
		in.bytes, in.lent = b, true
		return
	}
	in.Settle()
	in.keep(b)
}

// add puts the first n bytes of a block behind the input. The block is the input's from then on.
func (in *Input) add(block *[]byte, n int) {
	if n > 0 && len(in.bytes) == 0 {
		in.Drop()
		*in = Input{bytes: (*block)[:n], own: (*block)[:0], block: block}
		return
	}
	in.Settle()
	in.keep((*block)[:n])
	freeBlock(block)
}

// Settle ends the loan: what is left of it is copied. It must be called before the lender's memory
// is used again.
func (in *Input) Settle() {
	if !in.lent {
		return
	}
	b := in.bytes
	in.bytes, in.lent = nil, false
	in.keep(b)
}

// keep copies b behind the input, which is in own memory or empty.
func (in *Input) keep(b []byte) {
	if len(b) == 0 {
		return
	}
	n := len(in.bytes)
	if cap(in.bytes)-n < len(b) {
		in.grow(n + len(b))
	}
	in.bytes = append(in.bytes, b...)
}

// grow makes room for n bytes of input in own memory: by moving the input to its start, or by
// taking more.
func (in *Input) grow(n int) {
	if n <= cap(in.own) && len(in.bytes) <= cap(in.own)/2 { // else moving would cost more than it brings
		in.bytes = append(in.own[:0], in.bytes...) // they overlap: append moves
		return
	}
	old := in.block
	if in.block = newBlock(max(n, min(2*cap(in.own), blockSizes[len(blockSizes)-1]))); in.block != nil {
		in.own = (*in.block)[:0]
	} else {
		in.own = make([]byte, 0, max(n, 2*cap(in.own)))
	}
	in.bytes = append(in.own, in.bytes...)
	if old != nil {
		freeBlock(old)
	}
}

// Len is the number of bytes.
func (in *Input) Len() int { return len(in.bytes) }

// Bytes is the input. It is valid until the next call of another method.
func (in *Input) Bytes() []byte { return in.bytes }

// Consume takes n bytes away.
func (in *Input) Consume(n int) {
	in.bytes = in.bytes[n:]
	if len(in.bytes) == 0 {
		in.Drop()
	}
}

// Read takes what fits p.
func (in *Input) Read(p []byte) int {
	n := copy(p, in.bytes)
	in.Consume(n)
	return n
}

// Drop forgets the input and its memory.
func (in *Input) Drop() {
	if in.block != nil {
		freeBlock(in.block)
	}
	*in = Input{}
}
