package contestant

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Hello is the body of a plaintext answer.
const Hello = "Hello, World!"

// HelloAnswer is a whole plaintext answer for servers that have no parser of HTTP: its fields are
// those that the others send.
func HelloAnswer() []byte {
	date := time.Now().UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT")
	return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nDate: %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s",
		date, len(Hello), Hello)
}

// reading is what JSON encodes.
type reading struct {
	Line    int               `json:"line"`
	Unit    string            `json:"unit"`
	Time    time.Time         `json:"time"`
	Values  []float64         `json:"values"`
	Labels  map[string]string `json:"labels"`
	Healthy bool              `json:"healthy"`
}

// JSON is the work of a request that has some: some tens of microseconds of encoding.
func JSON() []byte {
	all := make([]reading, 10)
	for i := range all {
		all[i] = reading{
			Line: i, Unit: "mbar", Time: time.Unix(1_700_000_000, 0).UTC(), Healthy: i%3 > 0,
			Values: []float64{1.5, 2.25 * float64(i), 1013.2, 1e-3},
			Labels: map[string]string{"hall": "west", "cell": "7"},
		}
	}
	b, err := json.Marshal(all)
	if err != nil {
		panic(err) // it is always the same
	}
	return b
}

// Address is the parameter "addr", where a server shall serve.
func (t *Turn) Address() (string, error) {
	if a := t.Text("addr"); a != "" {
		return a, nil
	}
	return "", errors.New("no parameter addr")
}
