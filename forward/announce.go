package forward

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/eclipse/paho.golang/paho"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/forward/batch"
)

// announcer publishes the newest checkpoint of the log, where that is configured: a link has one.
// A checkpoint that a newer one follows at once may be left out; what the newer one says holds for
// it, too. One may come twice.
type announcer struct {
	sent  []byte // acknowledged, or on its way
	m     *message
	since time.Time
}

// look publishes the checkpoint if it is new, and takes the answer to the one before.
func (a *announcer) look(to link, subject string, newest []byte) {
	if a.m != nil {
		select {
		case r := <-a.m.done:
			if a.m = nil; r.err != nil {
				a.sent = nil // again, with the next look
			}
		default:
			if time.Since(a.since) < ackPatience {
				return
			}
			a.m, a.sent = nil, nil
		}
	}
	if newest == nil || bytes.Equal(a.sent, newest) {
		return
	}
	m := &message{body: newest, done: make(chan result, 1)}
	if to.announce(subject, m) == nil {
		a.m, a.sent, a.since = m, newest, time.Now()
	}
}

// proofSubject is the subject, or the topic, of checkpoints: that of a source by the name proof.
func proofSubject(c config.Forward) string { return subjectOf(c.Subject, "", config.ProofToken, false) }

// announce implements link. The server drops a checkpoint that it had some minutes ago.
func (n *natsLink) announce(subject string, m *message) error {
	id := sha256.Sum256(m.body)
	number := n.waitFor(m)
	return n.nc.PublishMsg(&nats.Msg{
		Subject: subject, Reply: n.inbox + "." + strconv.FormatUint(number, 10), Data: m.body,
		Header: nats.Header{
			batch.CheckpointHeader: {"1"}, jetstream.MsgIDHeader: {hex.EncodeToString(id[:16])},
			jetstream.ExpectedStreamHeader: {n.d.cfg.Stream},
		},
	})
}

// announce implements link. The broker keeps the newest for those who subscribe later.
func (q *mqttLink) announce(topic string, m *message) error {
	var of paho.UserProperties
	of.Add(batch.CheckpointHeader, "1")
	q.publish(&paho.Publish{
		QoS: 1, Retain: true, Topic: topic, Payload: m.body,
		Properties: &paho.PublishProperties{User: of},
	}, m)
	return nil
}
