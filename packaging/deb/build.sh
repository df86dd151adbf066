#!/bin/sh
# Builds coldplate_VERSION_ARCHITECTURE.deb: `make deb`. Two builds of one commit give the same bytes.
#
#   build.sh WHEELS MACHINE OUT      MACHINE: x86_64 or aarch64; MAINTAINER as a package's field has it;
#   COMPRESSION: xz, zstd or none
set -eu
umask 022
cd "$(dirname "$0")/../.."
wheels=$1 out=$3
case $2 in
x86_64) architecture=amd64 ;;
aarch64) architecture=arm64 ;;
esac
: "${MAINTAINER:=coldplate maintainers <coldplate@localhost>}" "${COMPRESSION:=xz}"
. packaging/release.sh
command -v dpkg-deb >/dev/null || { echo "coldplate: a Debian package is built with dpkg-deb: use Debian or one of its derivatives" >&2; exit 1; }
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

# The entries of this version, as a Debian changelog has them.
changelog() {
	echo "coldplate ($package_version) stable; urgency=medium"
	echo
	awk -v version="$version" '/^## / {here = $2 == version} here && /^- / {sub(/^- /, ""); print "  * " $0}' CHANGELOG.md
	printf '\n -- %s  %s\n' "$MAINTAINER" "$(LC_ALL=C date -u -R --date="@$SOURCE_DATE_EPOCH")"
}

documents() {
	cp packaging/deb/copyright "$root/usr/share/doc/coldplate"
	changelog | gzip -9n >"$root/usr/share/doc/coldplate/changelog.gz"
}

# In KiB, as dpkg's policy counts: each file rounded up, and one for everything else.
size_of_files() { find "$root" -mindepth 1 -printf '%y %s\n' | awk '{sum += $1 == "f" ? int(($2 + 1023) / 1024) : 1} END {print sum}'; }

control() {
	size=$(size_of_files)
	mkdir "$root/DEBIAN"
	sed -e "s|@VERSION@|$package_version|; s|@ARCHITECTURE@|$architecture|; s|@SIZE@|$size|" \
		-e "s|@MAINTAINER@|$MAINTAINER|" packaging/deb/control.in >"$root/DEBIAN/control"
	cp packaging/deb/triggers "$root/DEBIAN"
	echo /etc/coldplate/coldplate.yaml >"$root/DEBIAN/conffiles"
	for script in preinst postinst prerm postrm; do
		sed -e '/^@SCRIPTLETS@$/{r packaging/scriptlets.sh' -e 'd}' "packaging/deb/$script" >"$root/DEBIAN/$script"
		chmod 755 "$root/DEBIAN/$script"
	done
	(cd "$root" && find opt usr -type f | LC_ALL=C sort | xargs -d '\n' md5sum) >"$root/DEBIAN/md5sums"
}

ZSHDIR=/usr/share/zsh/vendor-completions sh packaging/stage.sh "$root" "$wheels" /usr/bin/python3
documents
control
mkdir -p "$out"
package=$out/coldplate_${package_version}_$architecture.deb
echo "packing $package ..."
dpkg-deb --root-owner-group "-Z$COMPRESSION" --build "$root" "$package.new" >/dev/null
mv "$package.new" "$package"
echo "built      $package ($(du -k "$package" | cut -f1) KB, installed $size KB)"
