package main

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// openJetStream is a NATS server in this process that syncs before it acknowledges.
func openJetStream(dir string) (func([]byte) error, error) {
	s, err := server.NewServer(&server.Options{
		JetStream: true, StoreDir: dir, DontListen: true, NoLog: true,
		NoSigs: true, SyncAlways: true,
	})
	if err != nil {
		return nil, err
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		return nil, errors.New("the server does not start")
	}
	c, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(c)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "log", Subjects: []string{"log"}}); err != nil {
		return nil, err
	}
	return func(b []byte) error {
		_, err := js.Publish(ctx, "log", b)
		return err
	}, nil
}
