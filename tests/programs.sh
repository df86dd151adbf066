#!/bin/sh
# Finds the real programs that the tests use, or brings them into .programs/ without installing anything:
# Debian's prometheus packages would otherwise start their services on the machine. Exits 0 also where some
# are missing; their tests then skip, loudly, or fail when CI=true.
set -u
apt_get() { DEBIAN_FRONTEND=noninteractive apt-get -qq "$@"; }
may_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

if [ "${1:-}" = venv ]; then
	may_install || { echo "python3 has no venv module: install your distribution's python3-venv package" >&2; exit 1; }
	apt_get update && apt_get install -y --no-install-recommends python3-venv >/dev/null
	exit
fi

bring() { # bring PROGRAM PACKAGE: unpack PACKAGE into .programs
	command -v "$1" >/dev/null && return
	command -v apt-get >/dev/null && command -v dpkg >/dev/null || return
	echo "fetching $2 into .programs ..."
	mkdir -p .programs/packages
	(
		cd .programs/packages || exit
		apt_get download "$2" 2>/dev/null || { may_install && apt_get update && apt_get download "$2" 2>/dev/null; }
	) && for package in .programs/packages/"$2"_*.deb; do dpkg -x "$package" .programs; done
}

install() { # install PROGRAM PACKAGE...: these have no services
	program=$1
	shift
	command -v "$program" >/dev/null && return
	may_install || return
	echo "installing $* ..."
	apt_get update && apt_get install -y --no-install-recommends "$@" >/dev/null
}

bring promtool prometheus
bring prometheus-node-exporter prometheus-node-exporter
bring prometheus-alertmanager prometheus-alertmanager # amtool is in it
install cc gcc libc6-dev
[ "${CI:-}" = true ] && install systemd-analyze systemd
for program in promtool prometheus prometheus-node-exporter prometheus-alertmanager amtool cc systemd-analyze; do
	command -v "$program" >/dev/null || echo "missing: $program; the tests that need it are left out" >&2
done
exit 0
