#!/bin/sh
# Fetches what `tallywheel lab board` and the tests with real drivers need, once, by Debian's apt: an emulator, a C compiler for ARMv7, and
# Debian's kernels with the drivers of a UART and of an FTDI adapter. Those lie in .deps-board: vmlinuz, modules/, which are loaded in the
# order of their names, and armmp, the kernel of the boards. Some 130 MB, and the compiler 150 MB; the kernels' packages are not installed.
set -eu
cd "$(dirname "$0")/.."
to=.deps-board
there() { for p in qemu-system-x86_64 qemu-system-arm arm-linux-gnueabihf-gcc; do command -v $p >/dev/null || return 1; done; }
[ -e "$to/.done" ] && there && exit 0
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
	{ echo "missing: Debian's apt; without it the tests with real drivers are skipped"; exit 1; }
run=""
[ "$(id -u)" = 0 ] || run="sudo -n"
$run apt-get update -qq >/dev/null
DEBIAN_FRONTEND=noninteractive $run apt-get install -y -qq --no-install-recommends --no-remove \
	qemu-system-x86 qemu-system-arm gcc-arm-linux-gnueabihf libc6-dev-armhf-cross >/dev/null
[ ! -e "$to/.done" ] || exit 0
rm -rf "$to"
mkdir -p "$to/modules" "$to/deb"
image=$(apt-cache depends --no-recommends --no-suggests linux-image-amd64:amd64 | sed -n 's/.*Depends: \(linux-image-[^ ]*\).*/\1/p' | head -1)
installer=debian-installer-12-netboot-armhf
(cd "$to/deb" && apt-get download -qq "${image%:*}" "$installer" 2>/dev/null)
for p in "$to"/deb/*.deb; do dpkg-deb -x "$p" "$to/deb/all"; done
n=10
for m in usb/common/usb-common usb/core/usbcore usb/host/xhci-hcd usb/host/xhci-pci usb/serial/usbserial usb/serial/ftdi_sio; do
	file=$(ls "$to"/deb/all/lib/modules/*/kernel/drivers/$m.ko*)
	case "$file" in *.xz) xz -d "$file" && file=${file%.xz} ;; esac
	cp "$file" "$to/modules/$n-$(basename "$file")"
	n=$((n + 1))
done
cp "$to"/deb/all/boot/vmlinuz-* "$to/vmlinuz"
cp "$to"/deb/all/usr/lib/debian-installer/images/*/armhf/text/debian-installer/armhf/vmlinuz "$to/armmp"
rm -rf "$to/deb"
: >"$to/.done"
