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
		sink := &zapcore.BufferedWriteSyncer{WS: f, Size: 256 << 10}
		enc := zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "m"})
		log := zap.New(zapcore.NewCore(enc, sink, zap.InfoLevel))
		err = contestant.Appenders(t, func(record []byte) error {
			log.Info("", zap.ByteString("d", record[:64])) // 128 bytes as it writes them, escaped
			return nil
		})
		return errors.Join(err, sink.Stop(), f.Close())
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
