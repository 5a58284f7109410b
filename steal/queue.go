package steal

// queue is a bounded row of tasks, which its owner guards.
type queue struct {
	ring  []Task // grows as it fills, up to max; its length is a power of two
	first int    // index of the oldest
	n     int
	max   int
}

const firstRing = 16

func newQueue(max int) queue { return queue{max: max} }

// push puts a task behind the newest; false: there is no room.
func (q *queue) push(t Task) bool {
	if q.n == q.max {
		return false
	}
	if q.n == len(q.ring) {
		q.grow()
	}
	q.ring[(q.first+q.n)&(len(q.ring)-1)] = t
	q.n++
	return true
}

func (q *queue) grow() {
	ring := make([]Task, max(firstRing, 2*len(q.ring)))
	for i := range q.n {
		ring[i] = q.ring[(q.first+i)&(len(q.ring)-1)]
	}
	q.ring, q.first = ring, 0
}

// takeNewest takes the newest task; nil: there is none.
func (q *queue) takeNewest() Task {
	if q.n == 0 {
		return nil
	}
	q.n--
	return q.take((q.first + q.n) & (len(q.ring) - 1))
}

// takeOldest takes so many of the oldest tasks, or all.
func (q *queue) takeOldest(most int) []Task {
	most = min(most, q.n)
	if most == 0 {
		return nil
	}
	tasks := make([]Task, most)
	for i := range tasks {
		tasks[i] = q.take(q.first)
		q.first = (q.first + 1) & (len(q.ring) - 1)
	}
	q.n -= most
	return tasks
}

// take empties a place, so that what a task holds is not kept alive.
func (q *queue) take(i int) Task {
	t := q.ring[i]
	q.ring[i] = nil
	return t
}
