// Command append is what Go programs log with, without a sync: zap into a buffered sink, and
// lumberjack.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tallywheel/tallywheel/lab/contestant"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"gopkg.in/natefinch/lumberjack.v2"
)

func main() { contestant.Main(run) }

func run(t *contestant.Turn) error {
	dir, err := os.MkdirTemp(t.Text("dir"), "append-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "log")
	switch t.Name {
	case "zap":
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		appendOne, stop := zapTo(f)
		err = contestant.Appenders(t, appendOne)
		return errors.Join(err, stop(), f.Close())
	case "lumberjack":
		w := &lumberjack.Logger{Filename: path, MaxSize: 1024}
		err := contestant.Appenders(t, func(record []byte) error {
			_, err := w.Write(record)
			return err
		})
		return errors.Join(err, w.Close())
	}
	return fmt.Errorf("no contestant %q", t.Name)
}

// zapFrame is what zap writes beside a record.
const zapFrame = len(`{"m":"","d":""}` + "\n")

// zapTo has zap write lines as long as the records, gathered as the other logs gather them.
func zapTo(f zapcore.WriteSyncer) (appendOne func(record []byte) error, stop func() error) {
	sink := &zapcore.BufferedWriteSyncer{WS: f, Size: contestant.LogBuffer}
	enc := zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "m"})
	log := zap.New(zapcore.NewCore(enc, sink, zap.InfoLevel))
	return func(record []byte) error {
		log.Info("", zap.ByteString("d", record[:len(record)-zapFrame]))
		return nil
	}, sink.Stop
}
