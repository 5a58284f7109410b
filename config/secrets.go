package config

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
)

// Exposed lists the secrets of a configuration that everybody on this machine can read, a line for
// each file: the token, passwords and the address of a webhook, in the file that they were read
// from, private keys, and credentials.
func (c Config) Exposed(file string) (all []string) {
	secrets := []struct{ path, what string }{{c.API.TLS.Key, "is a private key"}, {c.Log.Sign, "is a private key"}}
	for _, f := range c.Forward {
		secrets = append(secrets, struct{ path, what string }{f.Creds, "holds credentials"},
			struct{ path, what string }{f.TLS.Key, "is a private key"})
	}
	var held []string
	if c.API.Token != "" {
		held = append(held, "a token")
	}
	if slices.ContainsFunc(c.Forward, func(f Forward) bool { return f.Password != "" }) {
		held = append(held, "a password")
	}
	if slices.ContainsFunc(append([]string{c.Notify.Webhook}, c.Notify.Command...), letsIn) {
		held = append(held, "the URL of a webhook")
	}
	if len(held) > 0 {
		secrets = append(secrets, struct{ path, what string }{file, "holds " + strings.Join(held, " and ")})
	}
	for _, s := range secrets {
		if s.path == "" {
			continue
		}
		st, err := os.Stat(s.path)
		if err == nil && st.Mode().IsRegular() && st.Mode().Perm()&0o004 != 0 {
			all = append(all, fmt.Sprintf("%s %s, and everybody on this machine can read it: chmod o= %s", s.path,
				s.what, s.path))
		}
	}
	return all
}

// letsIn reports whether a text is a URL of which more than the host may be a secret.
func letsIn(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Host != "" && (u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "")
}
