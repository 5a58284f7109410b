package seglog

import (
	"crypto/sha256"
	"hash"
)

// prior is what the header of a segment says of the one before it: which that is, and its hash when
// the new one was begun.
type prior struct {
	base uint64
	kind uint32 // what the hash covers
	hash [sha256.Size]byte
}

// What the hash of a segment covers.
const (
	hashNone = 0 // nothing: there is none, or what is before was not known
	// SHA-256 of the used part of its header, and of its commit frames that close records or holes,
	// in their order
	hashCommits = 1
)

// chain hashes a segment as it is written. A commit frame has the number, the bytes and the highest
// time of its batch, its last sequence, and a digest of the CRCs of its frames. The header has the
// hash of the segment before. So a hash that is kept elsewhere binds all that the log held by then,
// as far as CRC-32C can tell bytes apart: it finds what is exchanged, cut or out of place, not what
// somebody forges with care. To hash all bytes would cost more than to write them.
type chain struct{ state hash.Hash }

// chainFrom begins to hash a segment with that header.
func chainFrom(h header) chain {
	c := chain{sha256.New()}
	c.add(h.image())
	return c
}

// add hashes the next commit frame.
func (c chain) add(commit []byte) { c.state.Write(commit) }

// batch hashes the commit frame of a batch that was read. The mark of a clean end is left out: a
// log that could begin the next segment, but not keep its name for certain, may be closed all the
// same.
func (c chain) batch(b batch) {
	if len(b.frames) > 0 {
		c.add(b.commit)
	}
}

// sum is what the next segment says of this one, which begins with base.
func (c chain) sum(base uint64) prior {
	p := prior{base: base, kind: hashCommits}
	c.state.Sum(p.hash[:0])
	return p
}
