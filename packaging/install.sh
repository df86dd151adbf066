#!/bin/sh
# Installs coldplate on this machine, or removes it: `make install`, `make uninstall`. Starts nothing.
#
#   PREFIX      directory of the program, in its own environment (default /opt/coldplate)
#   PYTHON      the Python to use, 3.10 or newer (default python3); EXTRAS=top,kubernetes: optional libraries (default top)
#   DESTDIR     for packages: everything is installed below it, and this machine is not changed
#   UNITDIR, SYSUSERSDIR, UDEVDIR, TMPFILESDIR    (default: the administrator's, below /etc)
#   BINDIR, SHAREDIR, ZSHDIR    for the command, its manual pages and completion (default below /usr/local)
# Packages bring their own program: `sh packaging/install.sh files` puts everything else below DESTDIR, and the configuration.
set -eu
umask 022
cd "$(dirname "$0")/.."
: "${PREFIX:=/opt/coldplate}" "${PYTHON:=python3}" "${DESTDIR:=}" "${EXTRAS=top}"
: "${UNITDIR:=/etc/systemd/system}" "${SYSUSERSDIR:=/etc/sysusers.d}"
: "${UDEVDIR:=/etc/udev/rules.d}" "${TMPFILESDIR:=/etc/tmpfiles.d}"
: "${BINDIR:=/usr/local/bin}" "${SHAREDIR:=/usr/local/share}" "${ZSHDIR:=$SHAREDIR/zsh/site-functions}"
units='coldplate.service coldplate-broker.socket coldplate-broker.service coldplate-kubelet.socket coldplate-kubelet.service'

fail() { echo "coldplate: $*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }
running_systemd() { [ -z "$DESTDIR" ] && [ -d /run/systemd/system ]; }

check() {
	[ -n "$DESTDIR" ] || [ "$(id -u)" = 0 ] || fail "run this as root, or give DESTDIR=directory for a package"
	case $PREFIX in /?*) ;; *) fail "PREFIX=$PREFIX: give an absolute path, such as /opt/coldplate" ;; esac
	case $PREFIX in *[!A-Za-z0-9/._-]*) fail "PREFIX=$PREFIX: letters, digits and / . _ - only, for it is part of units" ;; esac
	case $PREFIX/ in /home/* | /root/* | /run/user/* | /tmp/* | /var/tmp/*) fail "PREFIX=$PREFIX: the services do not see it there; choose another place, such as /opt/coldplate" ;; esac
}

# The location of the Python behind the environment: the services must see it, and ProtectHome= hides homes.
base_of() {
	"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
		fail "$PYTHON is missing or older than 3.10; name another: make install PYTHON=python3.12"
	base=$("$PYTHON" -c 'import os, sys; print(os.path.realpath(sys.base_prefix))')
	case $base in /home/* | /root/* | /run/user/*) fail "$PYTHON lives in $base, which the services do not see; name another: make install PYTHON=/usr/bin/python3" ;; esac
}

pip() { "$fresh/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "$@"; }

# Options that name the locked versions of everything that is installed, with their hashes.
locks() {
	printf '%s' '-r packaging/locks/base.txt'
	for each in $(echo "$EXTRAS" | tr ',' ' '); do
		[ -f "packaging/locks/$each.txt" ] || fail "EXTRAS=$EXTRAS: no versions are locked for $each; there are top and kubernetes"
		printf ' %s' "-r packaging/locks/$each.txt"
	done
}

# Built beside the current one and then moved into place: a failed build changes nothing.
program() {
	target=$DESTDIR$PREFIX
	fresh=$target.new
	[ ! -e "$target" ] || [ -f "$target/pyvenv.cfg" ] || fail "$target is there, and no environment of coldplate's; choose another PREFIX"
	source=$(mktemp -d)
	trap 'rm -rf "$source" "$fresh"' EXIT
	mkdir -p "${target%/*}"
	"$PYTHON" -m venv --clear "$fresh" || fail "$PYTHON cannot make environments: install your distribution's python3-venv"
	cp -R pyproject.toml README.md LICENSE agent alerts dashboards exporters "$source"
	locked=$(locks)
	# shellcheck disable=SC2086 # several words
	pip --require-hashes $locked || fail "the libraries could not be installed (pip's words are above); versions and hashes are those of packaging/locks"
	pip --require-hashes --target "$source/build-tools" -r packaging/locks/build.txt || fail "what builds the program could not be installed (pip's words are above)"
	PYTHONPATH=$source/build-tools pip --no-deps --no-build-isolation "$source" || fail "the program could not be built (pip's words are above)"
	# The services may not write here: code that is not compiled now would be compiled at each start.
	"$fresh/bin/python" -m compileall -q -f -s "$fresh" -p "$PREFIX" "$fresh/lib" >/dev/null || true
	for each in "$fresh"/bin/* "$fresh/pyvenv.cfg"; do
		[ -L "$each" ] || [ -d "$each" ] || sed -i "s#$fresh#$PREFIX#g" "$each"
	done
	rm -rf "$target.old"
	[ ! -e "$target" ] || mv "$target" "$target.old"
	mv "$fresh" "$target"
	rm -rf "$target.old"
	echo "installed  $target ($("$target/bin/python" --version))"
}

put() { # put FILE DIRECTORY [NAME]: replaces /opt/coldplate with PREFIX
	mkdir -p "$DESTDIR$2"
	sed "s#/opt/coldplate#$PREFIX#g" "$1" >"$DESTDIR$2/${3:-${1##*/}}"
	chmod 644 "$DESTDIR$2/${3:-${1##*/}}"
	echo "installed  $DESTDIR$2/${3:-${1##*/}}"
}

# What a person types: the command, its manual pages, and completion where each shell looks for it.
link_command() {
	link=$DESTDIR$BINDIR/coldplate
	if [ -e "$link" ] && [ ! -L "$link" ]; then
		echo "kept       $link, which is not ours: call $PREFIX/bin/coldplate"
	else
		mkdir -p "${link%/*}"
		ln -sf "$PREFIX/bin/coldplate" "$link"
		echo "installed  $link"
	fi
	rm -f "$DESTDIR$SHAREDIR"/man/man1/coldplate.1 "$DESTDIR$SHAREDIR"/man/man1/coldplate-*.1
	for page in packaging/man/*.1; do put "$page" "$SHAREDIR/man/man1"; done
	put packaging/completion/coldplate.bash "$SHAREDIR/bash-completion/completions" coldplate
	put packaging/completion/_coldplate "$ZSHDIR"
}

remove_command() {
	link=$DESTDIR$BINDIR/coldplate
	if [ -L "$link" ] && [ "$(readlink "$link")" = "$PREFIX/bin/coldplate" ]; then rm -f "$link"; fi
	rm -f "$DESTDIR$SHAREDIR"/man/man1/coldplate.1 "$DESTDIR$SHAREDIR"/man/man1/coldplate-*.1
	rm -f "$DESTDIR$SHAREDIR/bash-completion/completions/coldplate" "$DESTDIR$ZSHDIR/_coldplate"
}

files() {
	for unit in $units; do put "packaging/systemd/$unit" "$UNITDIR"; done
	put packaging/sysusers.d/coldplate.conf "$SYSUSERSDIR"
	put packaging/udev/70-coldplate.rules "$UDEVDIR"
	put packaging/tmpfiles.d/coldplate.conf "$TMPFILESDIR"
	link_command
	rm -rf "$DESTDIR$UNITDIR/coldplate-broker.service.d/python.conf"
	case $base in /usr | /usr/*) return ;; esac
	mkdir -p "$DESTDIR$UNITDIR/coldplate-broker.service.d"
	printf '# The Python of this installation lives outside /usr.\n[Service]\nBindReadOnlyPaths=%s\n' "$base" \
		>"$DESTDIR$UNITDIR/coldplate-broker.service.d/python.conf"
	echo "installed  $DESTDIR$UNITDIR/coldplate-broker.service.d/python.conf"
}

activate() { # applies users, permissions and units; starts nothing
	systemd-sysusers "$SYSUSERSDIR/coldplate.conf" || fail "the users could not be made"
	echo "created    users and groups coldplate, coldplate-broker"
	running_systemd || return 0
	if have udevadm && [ -S /run/udev/control ]; then
		udevadm control --reload && udevadm trigger --action=change --subsystem-match=powercap --subsystem-match=ipmi
		echo "applied    udev rules: RAPL counters for the group coldplate, IPMI for coldplate-broker"
	fi
	have systemd-tmpfiles && systemd-tmpfiles --create "$TMPFILESDIR/coldplate.conf" || true
	systemctl daemon-reload
}

install_all() {
	check
	base_of
	program
	files
	[ -z "$DESTDIR" ] || return 0
	activate
	cat <<-NEXT

		Next: write /etc/coldplate/coldplate.yaml if you want anything but the defaults, then
		  systemctl enable --now coldplate.service coldplate-broker.socket coldplate-kubelet.socket
		and, after an update of a node where it runs:
		  systemctl try-restart coldplate.service
		What works then, and how to fix what does not: coldplate doctor
		What each unit is for, and what is lost without it: docs/operations.md
	NEXT
}

files_of_a_package() {
	[ -n "$DESTDIR" ] || fail "files: give DESTDIR=directory"
	check
	base=/usr
	files
	put packaging/coldplate.yaml /etc/coldplate
}

uninstall_all() {
	check
	if running_systemd; then
		systemctl disable --now --quiet $units 2>/dev/null || true
	fi
	for unit in $units; do rm -f "$DESTDIR$UNITDIR/$unit"; done
	rm -rf "$DESTDIR$UNITDIR/coldplate-broker.service.d/python.conf"
	rmdir "$DESTDIR$UNITDIR/coldplate-broker.service.d" 2>/dev/null || true
	remove_command
	rm -f "$DESTDIR$SYSUSERSDIR/coldplate.conf" "$DESTDIR$UDEVDIR/70-coldplate.rules" "$DESTDIR$TMPFILESDIR/coldplate.conf"
	if [ -f "$DESTDIR$PREFIX/pyvenv.cfg" ]; then rm -rf "$DESTDIR$PREFIX"; fi
	[ ! -e "$DESTDIR$PREFIX" ] || fail "$DESTDIR$PREFIX is no environment of coldplate's; left as it is"
	if running_systemd; then systemctl daemon-reload; fi
	echo "removed    $DESTDIR$PREFIX, the units, the udev rule, sysusers.d and tmpfiles.d, the command"
	echo "kept       /etc/coldplate, /var/lib/coldplate, the users; permissions of RAPL and IPMI until the next boot"
}

case "${1:-}" in
install) install_all ;;
files) files_of_a_package ;;
uninstall) uninstall_all ;;
*) sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
