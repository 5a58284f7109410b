package proof

import (
	"crypto/sha256"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// Hash is that of a leaf or of a tree.
type Hash = tlog.Hash

// Tree is a Merkle tree of RFC 6962 that grows leaf by leaf. It keeps a hash for each bit of its
// size, and no leaf. The zero value is empty.
type Tree struct {
	size    int64
	peaks   []Hash // of whole subtrees, the largest first
	follows bool
	leaf    int64  // to be followed
	at      int    // its peak, once it is there
	path    []Hash // from it up to its peak
}

// Follow keeps what proves that a leaf is in the tree: see Path. It is called before that leaf is
// added; the first one is 0.
func (t *Tree) Follow(leaf int64) { t.follows, t.leaf = true, leaf }

// Add appends a leaf.
func (t *Tree) Add(leaf Hash) {
	is := t.follows && t.size == t.leaf // or is above it
	had := t.follows && t.size > t.leaf
	t.size++
	last := len(t.peaks)
	for size := t.size; size&1 == 0; size >>= 1 {
		last--
		left := &t.peaks[last]
		if is {
			t.path = append(t.path, *left)
		} else if had && t.at == last {
			t.path, is = append(t.path, leaf), true
		}
		leaf = above(left, &leaf)
	}
	t.peaks = append(t.peaks[:last], leaf)
	if is {
		t.at = last
	}
}

// above is the node above two.
func above(left, right *Hash) Hash {
	var b [1 + 2*sha256.Size]byte
	b[0] = 1 // RFC 6962: nodes begin with 1
	copy(b[1:], left[:])
	copy(b[1+sha256.Size:], right[:])
	return sha256.Sum256(b[:])
}

// Size is how many leaves the tree has.
func (t *Tree) Size() int64 { return t.size }

// Root is the hash of the tree as it is now.
func (t *Tree) Root() Hash {
	root, _ := t.fold()
	return root
}

// Path proves that the leaf which is followed is in the tree as it is now: the hashes beside the
// way from it to the root. It is what tlog.ProveRecord gives.
func (t *Tree) Path() []Hash {
	_, path := t.fold()
	return path
}

func (t *Tree) fold() (Hash, []Hash) {
	if t.size == 0 {
		return sha256.Sum256(nil), nil
	}
	path := slices.Clone(t.path)
	last := len(t.peaks) - 1
	root, is := t.peaks[last], t.at == last
	for i := last - 1; i >= 0; i-- {
		if is {
			path = append(path, t.peaks[i])
		} else if t.at == i {
			path, is = append(path, root), true
		}
		root = above(&t.peaks[i], &root)
	}
	return root, path
}
