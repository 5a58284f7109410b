package loadgen

import "time"

// pollFor is how long a thread of a closed loop looks for answers before it sleeps. A server pays
// for waking a thread that sleeps, with the time in which it would have sent further answers: the
// waking would be in what is measured.
const pollFor = 50 * time.Microsecond

// polls decides whether to look is worth the CPU. Where answers take longer than [pollFor] it is
// not, and the server may need the CPU: after looks in vain the thread sleeps at once, each time
// twice as often, until one finds something.
type polls struct {
	skip int // waits that are left to sleep at once
	next int // … to set skip to when the next look is in vain
}

// mostSkipped bounds how long answers that come quicker again go unnoticed.
const mostSkipped = 128

func (p *polls) worthIt() bool {
	if p.skip == 0 {
		return true
	}
	p.skip--
	return false
}

// ended takes how a look ended.
func (p *polls) ended(found bool) {
	if found {
		p.next = 0
		return
	}
	p.next = min(max(1, 2*p.next), mostSkipped)
	p.skip = p.next
}
