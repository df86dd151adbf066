#!/bin/bash
# Fetches what the full machine is made of into PLACE, once: QEMU and debootstrap (unpacked, not installed, unless this
# machine has them), and a Debian root with its kernel. build.sh PLACE
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
suite=${SUITE:-trixie}
packages=systemd,systemd-sysv,udev,kmod,linux-image-amd64,initramfs-tools,zstd,python3,python3-venv,make,iproute2,procps,ca-certificates,passwd
mkdir -p "$1"
place=$(cd "$1" && pwd)
stamp=$(cat "$here/build.sh" <(echo "$suite") | sha256sum | cut -d' ' -f1)
[ "$(cat "$place/stamp" 2>/dev/null)" = "$stamp" ] && exit 0
export DEBIAN_FRONTEND=noninteractive
tools=$place/tools

fetch() { # fetch PACKAGE...: unpack them, and what they need that is not installed, into tools
	local missing
	missing=$(apt-get -s install --no-install-recommends "$@" | awk '/^Inst/ {print $2}')
	mkdir -p "$tools/packages"
	(cd "$tools/packages" && apt-get -qq download $missing)
	for package in "$tools"/packages/*.deb; do dpkg -x "$package" "$tools"; done
	rm -rf "$tools/packages"
}

wrap() { # wrap NAME COMMAND: a command that finds the libraries and data of what was unpacked
	printf '#!/bin/sh\nexport LD_LIBRARY_PATH=%s/usr/lib/%s:%s/lib/%s\nexec %s "$@"\n' \
		"$tools" "$(uname -m)-linux-gnu" "$tools" "$(uname -m)-linux-gnu" "$2" >"$place/$1"
	chmod 755 "$place/$1"
}

apt-get -qq update
if command -v qemu-system-x86_64 >/dev/null; then
	ln -sf "$(command -v qemu-system-x86_64)" "$place/qemu"
else
	echo "fetching qemu into $tools ..."
	fetch qemu-system-x86
	wrap qemu "$tools/usr/bin/qemu-system-x86_64 -L $tools/usr/share/qemu -L $tools/usr/share/seabios -L $tools/usr/lib/ipxe/qemu"
fi
if command -v debootstrap >/dev/null; then
	debootstrap() { command debootstrap "$@"; }
else
	fetch debootstrap
	debootstrap() { DEBOOTSTRAP_DIR=$tools/usr/share/debootstrap "$tools/usr/sbin/debootstrap" "$@"; }
fi

echo "building a root file system of Debian $suite in $place ..."
mirror=$(awk '/^URIs:/ {print $2; exit}' /etc/apt/sources.list.d/*.sources 2>/dev/null || true)
[ -n "$mirror" ] || mirror=$(awk '/^deb / {print $2; exit}' /etc/apt/sources.list)
rm -rf "$place/root"
debootstrap --variant=minbase --include="$packages" "$suite" "$place/root" "$mirror" >"$place/build.log" 2>&1 ||
	{ tail -n 20 "$place/build.log" >&2; exit 1; }
root=$place/root
# A small initrd: it only has to find the disk.
sed -i 's/^MODULES=.*/MODULES=list/' "$root/etc/initramfs-tools/initramfs.conf"
printf 'virtio_pci\nvirtio_blk\next4\n' >>"$root/etc/initramfs-tools/modules"
chroot "$root" update-initramfs -u >>"$place/build.log" 2>&1
cp "$root"/boot/vmlinuz-* "$place/vmlinuz"
cp "$root"/boot/initrd.img-* "$place/initrd"
rm -rf "$root"/boot/* "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,locale,man}
# pip in the root reaches what pip reaches here.
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
for file in /etc/pip.conf "$HOME/.config/pip/pip.conf"; do [ ! -f "$file" ] || cp "$file" "$root/etc/pip.conf"; done
ln -sf /dev/null "$root/etc/systemd/system/serial-getty@ttyS0.service"
ln -sf /dev/null "$root/etc/systemd/system/systemd-networkd-wait-online.service"
echo coldplate >"$root/etc/hostname"
echo "$stamp" >"$place/stamp"
