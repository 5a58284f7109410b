package recordercrash

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/lab/load"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/seglog"
)

// A record is a frame of tally128, which has its number where Tallywheel sees it, or a line of text
// of the same length: "n=" and 12 digits, a blank, and as many x as it takes.

func frame(b []byte, n uint64) { tally128.Encode(b, tally128.Header{Device: 1, Epoch: 1, Seq: n}, nil) }

const (
	lineDigits = 12
	linePad    = load.RecordBytes - len("n=") - lineDigits - len(" \n")
)

var padding = bytes.Repeat([]byte{'x'}, linePad)

func textLine(b []byte, n uint64) {
	b = fmt.Appendf(b[:0], "n=%0*d ", lineDigits, n)
	b = append(b, padding...)
	_ = append(b, '\n') // the last of its bytes
}

// numbers finds the lines in a text, whatever stands around them. One that is cut is none.
func numbers(text []byte, each func(n uint64)) {
	for {
		at := bytes.Index(text, []byte("n="))
		if at < 0 {
			return
		}
		text = text[at+len("n="):]
		if len(text) < lineDigits+1+linePad || text[lineDigits] != ' ' ||
			!bytes.Equal(text[lineDigits+1:lineDigits+1+linePad], padding) {
			continue
		}
		if n, err := strconv.ParseUint(string(text[:lineDigits]), 10, 64); err == nil {
			each(n)
		}
	}
}

// inFile reads a file that has the lines.
func inFile(name string) func(folder string) (kept, error) {
	return func(folder string) (kept, error) {
		k := kept{times: map[uint64]int{}}
		b, err := os.ReadFile(filepath.Join(folder, name))
		numbers(b, func(n uint64) { k.times[n]++ })
		return k, err
	}
}

// tallywheel is `tallywheel run`, with defaults but for its source, and without the API.
func tallywheel(isolate, framing string) product {
	record := textLine
	if framing == "tally128" {
		record = frame
	}
	return product{
		record: record,
		command: func(t *contestant.Turn, folder string) ([]string, error) {
			exe, err := os.Executable()
			if err != nil {
				return nil, err
			}
			source := fmt.Sprintf("tcp: {listen: %q}", t.Text("at"))
			if t.Text("line") == "pty" {
				source = fmt.Sprintf("serial: {port: %q}", t.Text("at"))
			}
			text := fmt.Sprintf("log: {dir: %q}\napi: {listen: \"off\"}\nisolate: %s\nsources:\n  - {id: device, %s, frame: %s}\n",
				filepath.Join(folder, "log"), isolate, source, framing)
			file := configuration(folder)
			return []string{exe, "run", "-c", file, "--json"}, os.WriteFile(file, []byte(text), 0o600)
		},
		kept: inLog,
		stores: func(folder string) bool {
			dir := filepath.Join(folder, "log")
			if _, err := os.Stat(dir); err != nil {
				return false // it is not there yet
			}
			files, err := seglog.Dir(dir)
			if err != nil {
				return false
			}
			r := seglog.NewReader(files, 0)
			defer r.Close()
			_, err = r.Next()
			return err == nil
		},
	}
}

// configuration is the file of a product's configuration.
func configuration(folder string) string { return filepath.Join(folder, "configuration.yaml") }

// inLog reads a log, and the sheet that its recorder has printed last.
func inLog(folder string) (k kept, err error) {
	dir := filepath.Join(folder, "log")
	files, err := seglog.Dir(dir)
	if err != nil {
		return k, err
	}
	streams, err := archive.LoadStreams(dir)
	if err != nil {
		return k, err
	}
	k.times = map[uint64]int{}
	r := seglog.NewReader(files, 0)
	defer r.Close()
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return k, err
		}
		switch d, _ := streams.Describe(rec); {
		case d.Number != nil:
			k.times[*d.Number]++
		case d.Offset == nil: // bytes in no frame are not stored as records
			numbers(d.Data, func(n uint64) { k.times[n]++ })
		}
	}
	k.named, err = inBooks(filepath.Join(folder, outFile))
	return k, err
}

// inBooks is how many bytes the last sheet of a recorder says are missing, in all of its starts.
func inBooks(out string) (float64, error) {
	b, err := os.ReadFile(out)
	if err != nil {
		return 0, err
	}
	b = bytes.TrimSpace(b)
	var s ledger.Sheet
	if err := json.Unmarshal(b[bytes.LastIndexByte(b, '\n')+1:], &s); err != nil {
		return 0, fmt.Errorf("the last sheet: %w", err)
	}
	if !s.Balanced {
		return 0, errors.New("its books do not balance")
	}
	all := []ledger.Amount{s.Verdict.LostWire, s.Verdict.LostHere}
	if s.Past != nil {
		all = append(all, s.Past.LostWire, s.Past.LostHere)
	}
	sum := 0.0
	for _, a := range all {
		sum += float64(a.Frames*load.RecordBytes + a.Bytes)
	}
	return sum, nil
}

const linesFile = "lines"

// configured is a program that is called with a configuration, which is a text with the address,
// the port and the file of lines.
func configured(text string, args ...string) product {
	return product{
		record: textLine,
		command: func(t *contestant.Turn, folder string) ([]string, error) {
			host, port, err := net.SplitHostPort(t.Text("at"))
			if err != nil {
				return nil, err
			}
			file := configuration(folder)
			here := map[string]string{
				"host": host, "port": port, "lines": filepath.Join(folder, linesFile), "folder": folder,
			}
			text := os.Expand(text, func(name string) string { return here[name] })
			argv := []string{t.Text("program")}
			for _, a := range args {
				argv = append(argv, os.Expand(a, func(string) string { return file }))
			}
			return argv, os.WriteFile(file, []byte(text), 0o600)
		},
		kept: inFile(linesFile),
		stores: func(folder string) bool {
			st, err := os.Stat(filepath.Join(folder, linesFile))
			return err == nil && st.Size() > 0
		},
	}
}

var telegrafs = configured(`[agent]
  omit_hostname = true
[[inputs.socket_listener]]
  service_address = "tcp://${host}:${port}"
  data_format = "value"
  data_type = "string"
[[outputs.file]]
  files = ["${lines}"]
  data_format = "template"
  template = '{{ .Field "value" }}{{ "\n" }}'
`, "--config", "$file")

var rsyslogs = configured(`module(load="imtcp")
input(type="imtcp" address="${host}" port="${port}")
template(name="line" type="string" string="%rawmsg%\n")
action(type="omfile" file="${lines}" template="line")
`, "-n", "-i", "NONE", "-f", "$file")

var vectors = configured(`data_dir: ${folder}
sources:
  device: {type: socket, mode: tcp, address: "${host}:${port}"}
sinks:
  lines: {type: file, inputs: [device], path: ${lines}, encoding: {codec: text}}
`, "--config-yaml", "$file")

// otelcols appends to its file: by its default the next start would empty it.
var otelcols = configured(`receivers:
  tcp_log: {listen_address: "${host}:${port}"}
exporters:
  file: {path: ${lines}, append: true}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    logs: {receivers: [tcp_log], exporters: [file]}
`, "--config", "$file")
