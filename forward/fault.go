package forward

import (
	"errors"
	"fmt"
)

// Reasons why a destination, or a source at one, takes nothing. docs/guide/forward.md lists them.
const (
	reasonUnreachable  = "unreachable"    // nobody answers at the address
	reasonCredentials  = "credentials"    // they are refused, or have expired
	reasonTLS          = "tls"            // one of the two does not take the other's certificate
	reasonConfig       = "configuration"  // a file that is named cannot be read
	reasonNoResponders = "no_responders"  // no stream listens to the subject, or there is no JetStream
	reasonNoAnswer     = "no_answer"      // a message was not acknowledged in time
	reasonSlowConsumer = "slow_consumer"  // acknowledgements came faster than they were read
	reasonRefused      = "refused"        // the destination says why
	reasonTooLarge     = "too_large"      // a frame does not fit a message
	reasonDeleted      = "stream_deleted" // the stream is gone
	reasonNew          = "stream_new"     // another stream has its name
	reasonPurged       = "stream_purged"  // its messages are gone, and not by its limits
	reasonSealed       = "stream_sealed"  // it takes no messages any more
	reasonRetention    = "stream_policy"  // it removes messages that were read
	reasonBehind       = "stream_behind"  // it is older than what it had acknowledged
	reasonSequence     = "wrong_sequence" // somebody else's message is the last of the subject
	reasonOtherLog     = "other_log"      // the last message is of another log
	reasonAhead        = "ahead"          // it has records that this log has not
	reasonLog          = "log_unreadable" // the log cannot be read on
)

// fault is why a destination, or a lane, takes nothing now.
type fault struct {
	reason  string
	stopped bool // until somebody acts; else it may pass
	why     string
	lane    bool // it concerns one lane alone
}

// Error implements error.
func (f *fault) Error() string { return f.why }

func down(reason, format string, args ...any) *fault {
	return &fault{reason: reason, why: fmt.Sprintf(format, args...)}
}

func stopped(reason, format string, args ...any) *fault {
	return &fault{reason: reason, stopped: true, why: fmt.Sprintf(format, args...)}
}

// ofLane makes a fault one of a lane alone.
func (f *fault) ofLane() *fault {
	f.lane = true
	return f
}

// faultOf is what an error is as a fault.
func faultOf(err error) *fault {
	var f *fault
	if errors.As(err, &f) {
		return f
	}
	return down(reasonRefused, "%v", err)
}
