package recorder

import (
	"errors"
	"fmt"
	"time"
)

// thrown is what was counted of one connection that nobody is to read.
type thrown struct {
	socket uint64 // the inode of its socket, which no other has while the shelf has it
	n      uint64
	behind bool // see lane.untaken
}

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
	l.touched = true
}

// Why the reader of a source has not read all that it should have when that stopped.
const (
	badReader = "the reader did not come to its end"
	badKeeper = "the keeper may open no more descriptors, and the reader has not heard of all that it was to read"
)

// badEnd is how a stop ends badly for a lane.
type badEnd struct {
	unended string // the cause; "": it does not
	untaken uint64
}

// endsBadly has the stop fail for such a cause.
func (l *lane) endsBadly(cause string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unended, l.touched = cause, true
}

// badEnd is the cause of endsBadly since the recording began to stop; "": there is none.
func (l *lane) badEnd() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unended
}

// unended is an error where readers have not read all that they should have.
func unended(ports []*port) (err error) {
	for _, bad := range []struct{ cause, do string }{
		{badReader, "SIGCONT lets a process go on that was stopped"},
		{badKeeper, "raise the limit (ulimit -n, LimitNOFILE=)"},
	} {
		n := 0
		for _, p := range ports {
			if p.lane.badEnd() == bad.cause {
				n++
			}
		}
		if n > 0 {
			err = errors.Join(err, fmt.Errorf("%s: what was not read of %d sources is lost, and in the sheet as unread.stopped where it is known; %s", bad.cause, n, bad.do))
		}
	}
	return err
}
