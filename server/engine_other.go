//go:build !linux

package server

import (
	"context"
	"fmt"
	"net"
)

// engine has nothing here.
type engine struct{}

// Available says whether an engine can be had here, and why not.
func Available(e Engine) error {
	if e == Std {
		return nil
	}
	return fmt.Errorf("%s: %w: it needs Linux", e, ErrUnavailable)
}

func (s *Server) startLoops(net.Listener) error         { return ErrUnavailable }
func (s *Server) stopLoops(context.Context, bool) error { return nil }
func (s *Server) wait()                                 {}
