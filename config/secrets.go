package config

import (
	"fmt"
	"os"
)

// Exposed lists the secrets of a configuration that everybody on this machine can read, a line
// each: the token, in the file that it was read from, and the private key.
func (c Config) Exposed(file string) (all []string) {
	secrets := []struct{ path, what string }{{c.API.TLS.Key, "is a private key"}}
	if c.API.Token != "" {
		secrets = append(secrets, struct{ path, what string }{file, "holds a token"})
	}
	for _, s := range secrets {
		if s.path == "" {
			continue
		}
		st, err := os.Stat(s.path)
		if err == nil && st.Mode().IsRegular() && st.Mode().Perm()&0o004 != 0 {
			all = append(all, fmt.Sprintf("%s %s, and everybody on this machine can read it: chmod o= %s", s.path, s.what, s.path))
		}
	}
	return all
}
