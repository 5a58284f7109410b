package rtmemory

// arena is memory of a fixed size, of which blocks are cut off one behind the other, and given back
// all at once. Use one where all that a piece of work allocates ends with it: a request, a batch, a
// period. It cannot fragment, and its worst case is known when the program starts. It is no good
// where blocks live for different times: the one that lives longest keeps all of it. Blocks hold no
// pointers: the collector does not look into them. [slab] is for what does.
type arena struct {
	mem  []byte
	used int
}

func newArena() memory { return &arena{mem: make([]byte, bound)} }

// alloc is n bytes, or nil if there are not so many left. They are as whoever had them left them.
func (a *arena) alloc(n int) []byte {
	n = (n + 7) &^ 7
	if n > len(a.mem)-a.used {
		return nil
	}
	b := a.mem[a.used : a.used+n : a.used+n]
	a.used += n
	return b
}

// reset takes all blocks back. Nobody may use one any more.
func (a *arena) reset() { a.used = 0 }

func (a *arena) live() int { return a.used }

func (a *arena) step(s *sizes) bool {
	n := s.next()
	if a.used+n+7 > kept {
		a.reset()
	}
	b := a.alloc(n)
	if b == nil {
		return false
	}
	b[0], b[n-1] = 1, 1
	return true
}

func (a *arena) blocks(most int) (got int) {
	for ; got < most; got++ {
		b := a.alloc(block)
		if b == nil {
			break
		}
		for at := 0; at < block; at += 4096 {
			b[at] = 1
		}
	}
	return got
}

// slab is room for a fixed number of objects of one type, which are taken one behind the other and
// given back all at once, as blocks of an arena are. Use it with an arena, for what holds pointers
// and ends with the same piece of work: nodes of a list, a tree, a message that has been parsed.
//
// An object may point to others of the slab, and to what else ends with it: other slabs and arenas
// that are reset in the same moment. It must not point to what the heap has: that would live on
// until the object's place is taken again, which may be never, since a reset clears nothing. Nobody
// outside may keep a pointer over a reset: it would be of another object then, without an error. It
// must hold no lock, file or goroutine either: nothing tells an object of its end.
//
// What it costs: the collector follows all pointers in it, those of objects given back, too; and
// the room of one type is never another's, so that a slab that is too large lacks elsewhere.
type slab[T any] struct {
	room []T
	used int
}

func newSlab[T any](n int) slab[T] { return slab[T]{room: make([]T, n)} }

// take is an object without a value yet, or nil if all are taken.
func (s *slab[T]) take() *T {
	if s.used == len(s.room) {
		return nil
	}
	o := &s.room[s.used]
	s.used++
	var none T
	*o = none // the pointers of what it was before are no longer valid
	return o
}

// reset takes all objects back, as [arena.reset] does.
func (s *slab[T]) reset() { s.used = 0 }

// node is what a device keeps of an allocation, in a list whose newest is first.
type node struct {
	next *node
	data []byte
}

const (
	nodeSize = 32 // of 64 bits
	nodes    = 1 << 18
)

// list is an arena whose blocks hang on nodes of a slab. The bound is that of both.
type list struct {
	nodes  slab[node]
	data   arena
	newest *node
}

func newList() memory {
	return &list{nodes: newSlab[node](nodes), data: arena{mem: make([]byte, bound-nodes*nodeSize)}}
}

func (l *list) live() int { return l.data.used + l.nodes.used*nodeSize }

// reset takes nodes and blocks back in one moment, and keeps no pointer to them.
func (l *list) reset() {
	l.newest = nil
	l.nodes.reset()
	l.data.reset()
}

func (l *list) step(s *sizes) bool {
	n := s.next()
	if l.live()+n+7+nodeSize > kept || l.nodes.used == nodes {
		l.reset()
	}
	o, b := l.nodes.take(), l.data.alloc(n)
	if o == nil || b == nil {
		return false
	}
	b[0], b[n-1] = 1, 1
	o.next, o.data = l.newest, b[:n]
	l.newest = o
	return true
}

// blocks are of the arena alone: what the slab has is for nodes.
func (l *list) blocks(most int) (got int) { return l.data.blocks(most) }
