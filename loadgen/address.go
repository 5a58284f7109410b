package loadgen

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// parse reads a URL of Config.
func parse(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil && strings.Contains(text, "://"):
		return nil, err
	case err != nil, u.Host == "", u.Scheme != "http" && u.Scheme != "https": // "host:80" is no URL, or of scheme host
		return nil, fmt.Errorf("%q: want http://host:port/path, or https://", text)
	case !onWire(u.RequestURI()): // url.Parse leaves the query as it is
		return nil, fmt.Errorf("%q: want %%20 for a space", text)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, fmt.Errorf("%q: port %s: want 1 to 65535", text, port)
		}
	}
	return u, nil
}

// hostOf is the host of a URL as the server is told of it.
func hostOf(u *url.URL) string {
	host := withoutZone(u.Hostname())
	if host == u.Hostname() {
		return u.Host
	}
	return strings.Replace(u.Host, u.Hostname(), host, 1)
}

// withoutZone is a host without the zone of its address, which says something to this machine alone
// (RFC 6874, section 4).
func withoutZone(host string) string {
	if a, err := netip.ParseAddr(host); err == nil && a.Zone() != "" {
		return a.WithZone("").String()
	}
	return host
}

// resolve finds the addresses of a server, those of IPv4 first. A zone is a number in them.
func resolve(ctx context.Context, u *url.URL, patience time.Duration) (to []netip.AddrPort, err error) {
	ctx, end := context.WithTimeout(ctx, patience)
	defer end()
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", cmp.Or(u.Port(), u.Scheme))
	if err != nil {
		return nil, err
	}
	all, err := lookUp(ctx, u.Hostname())
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if a, err = numbered(a.Unmap()); err != nil {
			return nil, err
		}
		to = append(to, netip.AddrPortFrom(a, uint16(port)))
	}
	if len(to) == 0 {
		return nil, fmt.Errorf("%s has no address", u.Hostname())
	}
	slices.SortStableFunc(to, func(a, b netip.AddrPort) int {
		return cmp.Compare(a.Addr().BitLen(), b.Addr().BitLen())
	})
	return slices.Compact(to), nil
}

// lookUp finds the addresses of a host. Localhost is at both (RFC 6761, section 6.3), though files
// of hosts often have that of IPv4 alone.
func lookUp(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil { // a lookup would lose its zone
		return []netip.Addr{a}, nil
	}
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err == nil && strings.EqualFold(host, "localhost") {
		all = append(all, netip.IPv6Loopback())
	}
	return all, err
}

// numbered has the zone of an address, which is an interface, be that one's number.
func numbered(a netip.Addr) (netip.Addr, error) {
	if a.Zone() == "" {
		return a, nil
	}
	if _, err := strconv.ParseUint(a.Zone(), 10, 32); err == nil {
		return a, nil
	}
	i, err := net.InterfaceByName(a.Zone())
	if err != nil {
		return a, fmt.Errorf("zone %s of %s: %w", a.Zone(), a, err)
	}
	return a.WithZone(strconv.Itoa(i.Index)), nil
}
