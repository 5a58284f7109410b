package probe

import (
	"sync"

	"github.com/cilium/ebpf/btf"
)

// ofThisKernel are the variables of the programs for io_uring that differ from kernel to kernel.
// Of a kernel that does not say they have none: load tells what is missing.
var ofThisKernel = sync.OnceValue(func() map[string]any {
	v := map[string]any{"multishot_flags": uint64(0), "complete_has_data": uint32(0)}
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return v
	}
	if completeHasData(spec) {
		v["complete_has_data"] = uint32(1)
	}
	v["multishot_flags"] = multishotFlags(spec)
	return v
})

// completeHasData reports whether the tracepoint of completions is given user_data behind the ring
// and the request, as older kernels do it; newer ones give it a pointer to the completion.
func completeHasData(spec *btf.Spec) bool {
	var named *btf.Typedef
	if spec.TypeByName("btf_trace_io_uring_complete", &named) != nil {
		return false
	}
	pointer, _ := btf.UnderlyingType(named).(*btf.Pointer)
	if pointer == nil {
		return false
	}
	function, _ := pointer.Target.(*btf.FuncProto)
	if function == nil || len(function.Params) < 4 {
		return false
	}
	_, isPointer := btf.UnderlyingType(function.Params[3].Type).(*btf.Pointer)
	return !isPointer
}

// multishotFlags is the flag of a receive or an accept that is multishot, 0 if the kernel has none.
// It is in an enum without a name, near the others of io_uring, so they are looked through.
func multishotFlags(spec *btf.Spec) uint64 {
	for t, err := range spec.All() {
		if err != nil {
			return 0
		}
		enum, ok := t.(*btf.Enum)
		if !ok || enum.Name != "" {
			continue
		}
		for _, v := range enum.Values {
			if v.Name == "REQ_F_APOLL_MULTISHOT_BIT" && v.Value < 32 { // bpf/probe.c reads so many
				return 1 << v.Value
			}
		}
	}
	return 0
}
