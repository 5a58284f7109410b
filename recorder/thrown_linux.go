package recorder

import (
	"slices"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// What a connection holds that nobody is to read is counted while the connection is on the keeper's
// shelf still. A recorder that is killed then leaves both, and the next one has it read, or counted
// again. So a checkpoint that has such a count names its connection, and is saved before the
// connection leaves the shelf: the next recorder takes back what was counted of those that are
// there.

// maxThrown is how many a lane knows: of more than that, the first stay counted.
const maxThrown = 64

// savesThrown is how long a connection stays on the shelf for want of a checkpoint, as where the
// log stands still. Then a kill before the next checkpoint loses the count.
const savesThrown = time.Second

// throwsAway is unread, of what a connection holds. A checkpoint has both, the count and whose it
// is, or neither.
func (l *lane) throwsAway(fd int, n uint64) {
	file, err := sys.FileOf(fd)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.in.book.At(time.Now().UnixNano())
	l.giveUp(unreadStopped, n)
	l.touched = true
	if err == nil { // else nobody finds it on the shelf
		l.thrown = append(l.thrown, thrown{file.Ino, n, l.behind})
		l.thrown = l.thrown[max(0, len(l.thrown)-maxThrown):]
	}
}

// takesBack takes back what a recorder before this one has counted of connections that are on the
// shelf. Those that are not are gone, and so is what they held.
func (l *lane) takesBack(there []int) {
	var sockets []uint64
	for _, fd := range there {
		if file, err := sys.FileOf(fd); err == nil {
			sockets = append(sockets, file.Ino)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	all := len(l.thrown)
	l.thrown = slices.DeleteFunc(l.thrown, func(t thrown) bool {
		is := slices.Contains(sockets, t.socket)
		if is {
			l.in.book.Reread(unreadStopped, t.n)
			l.touched = true
			if t.behind {
				l.before.untaken -= min(t.n, l.before.untaken)
			}
		}
		return is
	})
	if all > 0 && len(l.thrown) == 0 { // all of it is read, or counted, anew, and says how that ends
		l.before.unended = ""
	}
	l.thrown = nil
}

// keepsThrown has what was counted of connections in a checkpoint, before they leave the shelf. It
// waits for the log, within a bound. What is saved once nothing more is shown is where all of the
// spool was.
func (rm *remote) keepsThrown() {
	if !rm.isTold() { // a kill leaves no spool of it
		return
	}
	for until := time.Now().Add(savesThrown); ; time.Sleep(spillLook) {
		if rm.hasSaved() || !time.Now().Before(until) {
			return
		}
		rm.iso.bell.Ring()
	}
}

// hasSaved saves what it can, and reports whether nothing is left to be saved, or can be.
func (rm *remote) hasSaved() bool {
	rm.iso.mu.Lock()
	defer rm.iso.mu.Unlock()
	at := rm.play.from.Point()
	if rm.play.log.hasFailed() || at.Done != at.Shown && !slices.Contains(rm.iso.remotes, rm) {
		return true
	}
	if rm.play.saveBoth() != nil {
		return true // it shows again
	}
	return rm.play.due == nil && !rm.lane.isTouched()
}

// there is the descriptors of all connections of a source, and of one of its peers, that the
// recorder before has left, and that may still be read.
func (g *gate) there(s *seat) (fds []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.waiting {
		fds = append(fds, w.fd())
	}
	for _, o := range s.has() {
		fds = append(fds, o.fd())
	}
	return fds
}
