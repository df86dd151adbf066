#!/bin/sh
# Fills a folder with all files that a package installs, as they lie on a node: the same for each kind of package.
#
#   stage.sh ROOT WHEELS PYTHON      ROOT: a new folder; WHEELS, PYTHON: as for program.sh; ZSHDIR as for install.sh
set -eu
umask 022
cd "$(dirname "$0")/.."
root=$1 wheels=$2 node_python=$3
. packaging/release.sh

# By hand, not by the machine's settings: this machine's own directories are of no interest.
put_files() {
	env DESTDIR="$root" PREFIX=/opt/coldplate UNITDIR=/usr/lib/systemd/system SYSUSERSDIR=/usr/lib/sysusers.d \
		UDEVDIR=/usr/lib/udev/rules.d TMPFILESDIR=/usr/lib/tmpfiles.d BINDIR=/usr/bin SHAREDIR=/usr/share \
		ZSHDIR="${ZSHDIR:-/usr/share/zsh/site-functions}" sh packaging/install.sh files >/dev/null
	gzip -9n "$root"/usr/share/man/man1/*.1
}

# The documents lie as in the checkout, so that their links hold; the pictures are too large for a node.
documents() {
	doc=$root/usr/share/doc/coldplate
	mkdir -p "$doc/examples" "$doc/docs/dev" "$doc/alerts/runbooks"
	cp packaging/sbom.cdx.json README.md SECURITY.md "$doc"
	cp docs/*.md "$doc/docs"
	cp docs/dev/*.md "$doc/docs/dev"
	cp alerts/runbooks/*.md "$doc/alerts/runbooks"
	for each in slurm node-problem-detector prometheus grafana fleet push; do cp -R "packaging/$each" "$doc/examples"; done
}

mkdir -p "$root"
put_files
documents
sh packaging/program.sh "$root/opt/coldplate" "$wheels" "$node_python"
find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
