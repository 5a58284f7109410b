package loadgen

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"net/url"
	"time"
)

// resolve finds the address of a server, of IPv4 if it has one.
func resolve(ctx context.Context, u *url.URL, patience time.Duration) (to netip.AddrPort, err error) {
	ctx, end := context.WithTimeout(ctx, patience)
	defer end()
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", cmp.Or(u.Port(), u.Scheme))
	if err != nil {
		return to, err
	}
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return to, err
	}
	ip := all[0]
	for _, a := range all {
		if a.Unmap().Is4() {
			ip = a.Unmap()
			break
		}
	}
	return netip.AddrPortFrom(ip, uint16(port)), nil
}
