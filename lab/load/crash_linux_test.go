package load

import (
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/internal/testenv"
)

// TestNobodyAnswers: while a connect is left unanswered, as Linux leaves it where a listener's
// queue is full, a device goes on: nobody takes what it says.
func TestNobodyAnswers(t *testing.T) {
	l := &tcpLine{addr: testenv.Unanswered(t)}
	began := time.Now()
	for range 20 {
		if taken, err := l.say(make([]byte, RecordBytes)); err != nil || taken {
			t.Fatalf("taken %v, %v", taken, err)
		}
	}
	if l.dialing == nil {
		t.Error("the connect was answered")
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
	t.Logf("20 records took %v", time.Since(began))
}
