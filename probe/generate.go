package probe

// What compiles the kernel's side, for those who change it: apt install clang libbpf-dev. The
// object is committed, so that nobody else needs a compiler.
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -no-strip=false -target bpfel -cc clang kernel bpf/probe.c -- -O2 -Wall -I/usr/include/x86_64-linux-gnu
