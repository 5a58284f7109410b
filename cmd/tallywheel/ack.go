package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/ledger"
	"github.com/tallywheel/tallywheel/recorder"
	"github.com/tallywheel/tallywheel/seglog"
)

// ackTimeout is how long a recorder may take to keep an acknowledgement.
const ackTimeout = 30 * time.Second

func newAck() *cobra.Command {
	var file, note string
	c := &cobra.Command{
		Use: "ack -c FILE", Short: "acknowledge what was lost: the verdict counts from now on",
		Long: "ack tells the recorder of FILE, by its API, that what was lost is known. The verdict counts from then on;\n" +
			"the books do not change. Where no recorder runs, the word is kept beside the sheets for the next start:\n" +
			"then run ack in the folder where the recorder is started, for a relative log.dir begins there.",
		Args: exactly(0, "no argument, and the configuration by -c FILE"),
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" {
				return fmt.Errorf("%w: ack: of which recorder? use -c FILE", errUsage)
			}
			if err := recorder.CheckNote(note); err != nil {
				return fmt.Errorf("%w: ack: --note: %w", errUsage, err)
			}
			cfg, err := loading(c.Context(), file, 0, config.Load)
			if err != nil {
				return err
			}
			a, err := acknowledge(c.Context(), cfg, note)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "the verdict counts since %s\n", a.At)
			return err
		},
	}
	c.Flags().StringVarP(&file, "config", "c", "", "configuration file of the recorder")
	c.Flags().StringVar(&note, "note", "", "why, for those who read it later: one line")
	return c
}

// acknowledge asks the recorder that runs, or leaves word for the next one. Which folder a relative
// log.dir names depends on where a program was started, so then the API is asked whether it is the
// recorder of the file. An absolute one says itself whether somebody records there.
func acknowledge(ctx context.Context, cfg config.Config, note string) (ledger.Ack, error) {
	path, err := filepath.Abs(cfg.Log.Dir)
	if err != nil {
		return ledger.Ack{}, fmt.Errorf("ack: %w", err)
	}
	isThere := true
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		isThere = false
	} else {
		lock, err := lockOf(path)
		switch {
		case errors.Is(err, seglog.ErrLocked) && cfg.API.Off():
			return ledger.Ack{}, fmt.Errorf("ack: the recorder of %s serves no API (api: {listen: off}): stop it first",
				path)
		case errors.Is(err, seglog.ErrLocked):
			return askToAck(ctx, cfg.API, note)
		case err != nil:
			return ledger.Ack{}, fmt.Errorf("ack: %w", err)
		}
		defer lock.Close()
	}
	if !filepath.IsAbs(cfg.Log.Dir) && !cfg.API.Off() {
		if err = isRecorderOf(ctx, cfg); err == nil {
			return askToAck(ctx, cfg.API, note)
		}
	}
	if !isThere {
		return ledger.Ack{}, noRecorder(cfg.Log.Dir, path, err)
	}
	a := archive.Ack{Ack: ledger.Ack{At: ledger.Time(time.Now().UnixNano()), Note: note}}
	return a.Ack, a.Save(path, "")
}

// lockOf is the lock of a log's folder: whoever has it records there.
func lockOf(path string) (io.Closer, error) {
	dir, err := seglog.Dir(path)
	if err != nil {
		return nil, err
	}
	return dir.Lock()
}

// noRecorder says that there is nothing to acknowledge at path, and why the API was of no help;
// nil: it was not asked.
func noRecorder(dir, path string, asked error) error {
	text, why := "", ""
	if !filepath.IsAbs(dir) {
		text = "; log.dir is relative to the folder in which the recorder was started: run ack there"
	}
	if asked != nil {
		why = " (" + strings.TrimPrefix(asked.Error(), "ack: ") + ")"
	}
	return fmt.Errorf("ack: nothing was recorded there: %s is not there%s%s", path, why, text)
}

// isRecorderOf is an error unless a recorder answers at the address of the configuration that has
// one of its sources, or has none where it has none.
func isRecorderOf(ctx context.Context, cfg config.Config) error {
	var has struct {
		Ports []struct {
			ID string `json:"id"`
		} `json:"ports"`
	}
	if err := ask(ctx, cfg.API, http.MethodGet, "/api/v1/ports", nil, &has); err != nil {
		return err
	}
	for _, p := range has.Ports {
		if slices.ContainsFunc(cfg.Sources, func(s config.Source) bool { return s.ID == p.ID }) {
			return nil
		}
	}
	if len(has.Ports) == 0 && len(cfg.Sources) == 0 {
		return nil
	}
	return fmt.Errorf("ack: the recorder at %s has none of the sources of this configuration", cfg.API.Listen)
}

// askToAck asks by the API.
func askToAck(ctx context.Context, api config.API, note string) (a ledger.Ack, err error) {
	body, err := json.Marshal(map[string]string{"note": note})
	if err != nil {
		return a, err
	}
	return a, ask(ctx, api, http.MethodPost, "/api/v1/ack", body, &a)
}

// maxAnswer is the most that is read of an answer, in bytes: the ports of many peers.
const maxAnswer = 64 << 20

// ask has the API answer into v. The certificate is the one of the configuration.
func ask(ctx context.Context, api config.API, method, path string, body []byte, v any) error {
	host, port, err := net.SplitHostPort(api.Listen)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	scheme, client := "http", http.Client{Timeout: ackTimeout}
	if api.TLS.Cert != "" {
		scheme = "https"
		if client.Transport, err = transportFor(api, host); err != nil {
			return fmt.Errorf("ack: %w", err)
		}
	}
	url := scheme + "://" + net.JoinHostPort(host, port) + path
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ack: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if api.Token != "" {
		req.Header.Set("Authorization", "Bearer "+api.Token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ack: no recorder answers: %w", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("ack: %s answers %s: %s", url, resp.Status, bytes.TrimSpace(b))
	}
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	return err
}

// transportFor trusts the certificate of the configuration.
func transportFor(api config.API, host string) (*http.Transport, error) {
	pool := x509.NewCertPool()
	pem, err := os.ReadFile(api.TLS.Cert)
	if err != nil {
		return nil, err
	}
	pool.AppendCertsFromPEM(pem)
	leaf, err := tls.LoadX509KeyPair(api.TLS.Cert, api.TLS.Key)
	if err != nil {
		return nil, err
	}
	return &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: pool, ServerName: nameOf(leaf, host),
		MinVersion: tls.VersionTLS12,
	}}, nil
}

// nameOf is a name that the certificate is for: the address listened at may be another.
func nameOf(c tls.Certificate, host string) string {
	switch leaf := c.Leaf; {
	case leaf == nil:
	case leaf.VerifyHostname(host) == nil:
	case len(leaf.DNSNames) > 0:
		return leaf.DNSNames[0]
	case len(leaf.IPAddresses) > 0:
		return leaf.IPAddresses[0].String()
	}
	return host
}
