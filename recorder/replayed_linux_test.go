package recorder

import (
	"testing"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/seglog"
)

// Behind a kill a lane is shown frames that the log has. No commit tells of them any more, where
// nothing new comes: they are stored all the same, or connections of their address would wait for
// that for ever.
func TestFramesThatTheLogHasAreStoredBehindAKill(t *testing.T) {
	c := newCrowd(t)
	_, s, producer := c.peer("a/127.0.0.2")
	brief(0, 10).feed(t, producer)
	c.iso.round()
	c.log.visible = len(c.log.all) // the log has all of it, and the recorder is killed
	seq := c.log.stored()

	r := &Recorder{iso: c.iso, commits: commits{news: make(chan struct{}, 1)}}
	r.commits.put(seglog.Commit{Stored: seq, Durable: seq}) // as the log was opened
	<-r.commits.news                                        // … which lanes have heard that were there
	l, err := newLane(config.Source{
		ID: "a/127.0.0.2", TCP: &config.Net{}, Frame: config.Frame{Kind: "tally128"},
		Overflow: config.OverflowBlock, Buffer: 2000,
	}, c.log, frameStream, wasteStream)
	if err != nil {
		t.Fatal(err)
	}
	rm, err := r.show(l, s, c.log)
	if err != nil {
		t.Fatal(err)
	}
	if !rm.isShown() || !l.isSettled() {
		t.Errorf("shown %v, settled %v: want both", rm.isShown(), l.isSettled())
	}
	select {
	case <-r.commits.news:
	default:
		t.Error("nobody brings the commit to the lanes that are shown more later")
	}
}
