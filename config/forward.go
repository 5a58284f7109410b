package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Forward is one destination that frames go on to; see package forward.
type Forward struct {
	Name       string        `yaml:"name" form:"id" about:"of the destination in the books; nothing: nats, or mqtt"`
	To         string        `yaml:"to" need:"yes" one:"nats mqtt" about:"what it is"`
	Source     string        `yaml:"source" about:"which sources: a name, or a pattern with * and ?; nothing: all"`
	Quarantine bool          `yaml:"quarantine" about:"forward bytes that were no frame, too"`
	Proof      bool          `yaml:"proof" about:"publish the checkpoints of the log, too, with proof in the place of the source"`
	Batch      Batch         `yaml:"batch" about:"how much one message carries"`
	Reset      string        `yaml:"reset" one:"stop resend" about:"what is done where the destination has lost what it had acknowledged, or has what this log has not"`
	URLs       []string      `yaml:"urls" about:"servers, as nats://host:4222, or mqtts://host:8883; nothing, to nats: a server within this process"`
	Listen     string        `yaml:"listen" about:"nats, the server within: host:port of this machine, or off"`
	MQTT       string        `yaml:"mqtt" about:"nats, the server within: host:port of this machine for subscribers by MQTT 3.1.1, or off"`
	Creds      string        `yaml:"creds" about:"nats: file of credentials; nothing: none"`
	User       string        `yaml:"user" about:"user name; nothing: none"`
	Password   string        `yaml:"password" secret:"yes" about:"of the user"`
	TLS        ClientTLS     `yaml:"tls" about:"PEM files of a client"`
	Stream     string        `yaml:"stream" form:"token-name" about:"nats: name of the stream, which is made if it is missing"`
	Subject    string        `yaml:"subject" about:"nats: subject of a source, with {source} as one of its tokens; mqtt: topic"`
	Replicas   int           `yaml:"replicas" min:"1" max:"5" about:"nats: copies of the stream; never lowered"`
	MaxAge     time.Duration `yaml:"max_age" min:"0s" about:"nats: of messages in the stream; never lowered; nothing: no limit"`
	MaxBytes   Size          `yaml:"max_bytes" min:"0" about:"nats: of the stream, whose oldest messages go beyond it; never lowered; nothing: no limit, 1GiB of the server within"`
}

// Batch is how much one message carries: it goes out when one of the three is reached.
type Batch struct {
	Frames int           `yaml:"frames" min:"1" max:"65536" about:"at most; 1: the message is the frame itself"`
	Bytes  Size          `yaml:"bytes" min:"1KiB" max:"8MiB" about:"at most; one larger frame goes alone"`
	Delay  time.Duration `yaml:"delay" min:"1ms" max:"1m" about:"how often what is there goes out"`
}

// ClientTLS names PEM files of a client.
type ClientTLS struct {
	CA   string `yaml:"ca" about:"certificates that the server's must come from; nothing: those of this machine"`
	Cert string `yaml:"cert" about:"certificate of this client; nothing: none"`
	Key  string `yaml:"key" about:"private key of this client"`
}

// SourceToken stands for the name of a source in a subject or a topic.
const SourceToken = "{source}"

// ProofToken stands for {source} in the subject of checkpoints.
const ProofToken = "proof"

// Embedded reports whether the destination is a server within this process.
func (f Forward) Embedded() bool { return f.To == "nats" && len(f.URLs) == 0 }

func (f Forward) withDefaults() Forward {
	fill(&f.Name, f.To)
	fill(&f.Batch.Delay, time.Second)
	fill(&f.Reset, "stop")
	fill(&f.Replicas, 1)
	if f.To == "mqtt" {
		fill(&f.Subject, "tallywheel/"+SourceToken)
		fill(&f.Batch.Frames, 2048)
		fill(&f.Batch.Bytes, 256<<10)
		return f
	}
	fill(&f.Stream, "TALLYWHEEL")
	fill(&f.Subject, "tallywheel."+SourceToken)
	fill(&f.Batch.Frames, 32<<10)
	fill(&f.Batch.Bytes, 4<<20)
	if f.Embedded() {
		fill(&f.Listen, "127.0.0.1:4222")
		fill(&f.MQTT, "off")
		fill(&f.MaxBytes, 1<<30)
	}
	return f
}

// Validate reports what is wrong with the section.
func (f Forward) Validate() Problems {
	p := checked(f)
	p.under("batch", checked(f.Batch))
	p.under("tls", checked(f.TLS))
	if (f.TLS.Cert == "") != (f.TLS.Key == "") {
		p.add("tls", "want both cert and key")
	}
	if (f.User == "") != (f.Password == "") {
		p.add("user", "want both user and password")
	}
	switch {
	case f.To == "mqtt":
		p.under("", f.validateMQTT())
	case f.Embedded():
		p.under("", f.validateEmbedded())
	case f.To == "nats":
		p.under("", f.validateURLs("nats", "tls"))
		if f.Listen != "" || f.MQTT != "" {
			p.add("urls", "listen and mqtt are of the server within this process: leave out either them or urls")
		}
	}
	return p
}

// wildcards have a meaning of their own in a subject or a topic.
const wildcards = "*>+# \t\r\n"

func (f Forward) validateSubject(separator string) (p Problems) {
	tokens := strings.Split(f.Subject, separator)
	n := 0
	for _, token := range tokens {
		if token == SourceToken {
			n++
		}
	}
	rest := strings.ReplaceAll(f.Subject, SourceToken, "")
	if n != 1 || slices.Contains(tokens, "") || strings.ContainsAny(rest, wildcards+"{}") ||
		strings.HasPrefix(rest, "$") {
		p.add("subject", "%q: want words with %q between them, one of which is %s", f.Subject, separator, SourceToken)
	}
	return p
}

func (f Forward) validateMQTT() Problems {
	p := f.validateURLs("mqtt", "mqtts")
	p.under("", f.validateSubject("/"))
	if len(f.URLs) == 0 {
		p.add("urls", "want the broker, as mqtts://host:8883")
	}
	if f.Listen != "" || f.MQTT != "" || f.Creds != "" || f.Stream != "" || f.Replicas > 1 || f.MaxAge != 0 ||
		f.MaxBytes != 0 {
		p.add("to", "mqtt has no listen, mqtt, creds, stream, replicas, max_age or max_bytes: those are of nats")
	}
	return p
}

func (f Forward) validateEmbedded() (p Problems) {
	p.under("", f.validateSubject("."))
	for _, l := range []struct{ key, at string }{{"listen", f.Listen}, {"mqtt", f.MQTT}} {
		if l.at == "off" {
			continue
		}
		host, why := address("tcp", l.at, true)
		if why != "" {
			p.add(l.key, "%s, or off", why)
		} else if !Loopback(host) {
			p.add(l.key,
				"%q is open to the network, and the server within asks nobody who they are: run a NATS server of its own, and name it by urls", l.at)
		}
	}
	if f.Replicas > 1 {
		p.add("replicas", "the server within is one: for copies run a cluster, and name it by urls")
	}
	if f.Creds != "" || f.User != "" || f.TLS != (ClientTLS{}) {
		p.add("creds", "creds, user and tls go with urls")
	}
	return p
}

func (f Forward) validateURLs(schemes ...string) (p Problems) {
	if f.To == "nats" {
		p.under("", f.validateSubject("."))
	}
	for i, text := range f.URLs {
		u, err := url.Parse(text)
		if err != nil || !slices.Contains(schemes, u.Scheme) || u.Host == "" || u.Path != "" || u.User != nil {
			p.add(fmt.Sprintf("urls[%d]", i), "want %s, without a user",
				alternatives([]string{schemes[0] + "://host:port", schemes[1] + "://host:port"}))
		}
	}
	return p
}

// validateForward reports what is wrong between the destinations, and with the log.
func (c Config) validateForward() (p Problems) {
	seen, embedded := map[string]bool{}, false
	for i, f := range c.Forward {
		path := fmt.Sprintf("forward[%d]", i)
		p.under(path, f.Validate())
		if seen[f.Name] {
			p.add(path+".name", "%q is there twice: give one of them another name", f.Name)
		}
		seen[f.Name] = true
		if f.Embedded() && embedded {
			p.add(path+".urls", "there is one server within this process, and it is a destination already")
		}
		embedded = embedded || f.Embedded()
		if f.Proof && c.Log.Prove == "off" {
			p.add(path+".proof", "there are no checkpoints without log.prove: on, or log.sign")
		}
		if f.Proof && slices.ContainsFunc(c.Sources, func(s Source) bool { return s.ID == ProofToken }) {
			p.add(path+".proof", "checkpoints have the subject of the source %q: give that another id", ProofToken)
		}
		if room := c.Log.Keep.Size - keptSegments*c.Log.Segment; f.Embedded() && c.Log.Keep.Size > 0 &&
			f.MaxBytes > room {
			p.add(path+".max_bytes", "%s: log.keep.size counts what the server within stores, too: want at most %s",
				f.MaxBytes, max(room, 0))
		}
	}
	if len(c.Forward) > 0 && (c.Log.Sync == "interval" || c.Log.Sync == "never") {
		p.add("log.sync", "%s: what is forwarded must be durable first: want batch or always", c.Log.Sync)
	}
	return p
}
