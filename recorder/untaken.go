package recorder

import (
	"fmt"
	"time"
)

// late says that what has arrived is given up now: because the log has not taken what came before,
// or else because the sender does not end.
func (l *lane) late() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.behind = l.out.full()
}

// unread posts bytes that the kernel had taken and that nobody will read.
func (l *lane) unread(cause string, n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.in.book.At(time.Now().UnixNano())
	l.giveUp(cause, n)
	l.touched = true
}

// giveUp is unread; mu is held, and the book knows the time.
func (l *lane) giveUp(cause string, n uint64) {
	l.in.book.Unread(cause, n)
	if l.behind {
		l.untaken += n
	}
}

// untake posts bytes that were read, and that the log has not taken in time.
func (l *lane) untake(n uint64) {
	l.mu.Lock()
	l.behind = true
	l.mu.Unlock()
	l.unread(unreadStopped, n)
}

// notTaken is how many bytes were given up because the log was behind.
func (l *lane) notTaken() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.untaken
}

// uncounted posts that bytes may be lost of which nobody knows, of a port that has stopped.
func (l *lane) uncounted(now int64, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.in.book.At(now)
	l.in.book.OutageBegins(now, why)
	l.touched, l.unended = true, true
}

// isUnended reports whether its reader did not come to its end, since the recording began to stop.
func (l *lane) isUnended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unended
}

// unended is an error where readers stood still: their ports have stopped before they had.
func unended(ports []*port) error {
	n := 0
	for _, p := range ports {
		if p.lane.isUnended() {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("the reader of %d sources stands still, and did not come to its end in time: what it had not read is lost, and in the sheet as unread.stopped where it is known; SIGCONT lets a process go on that was stopped", n)
}
