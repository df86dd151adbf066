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

# Debian's Alertmanager looks for its templates below /usr, where a program that is only unpacked has none, and no
# option says otherwise: the path in it is made a relative one of the same length, and it is started where that leads.
relocate() { # relocate PROGRAM DIRECTORY
	program=.programs/usr/bin/$1
	[ -x "$program" ] && LC_ALL=C grep -q "/$2" "$program" || return 0
	mkdir -p .programs/usr/libexec
	LC_ALL=C sed "s#/$2#$(echo "$2" | sed 's#/#//#')#g" "$program" >".programs/usr/libexec/$1" || return
	printf '#!/bin/sh\ncd "$(dirname "$0")/../.." && exec usr/libexec/%s "$@"\n' "$1" >"$program"
	chmod 755 "$program" ".programs/usr/libexec/$1"
}

install() { # install PROGRAM PACKAGE...: these have no services
	program=$1
	shift
	command -v "$program" >/dev/null && return
	may_install || return
	echo "installing $* ..."
	apt_get update && apt_get install -y --no-install-recommends "$@" >/dev/null
}

bring prometheus prometheus
bring promtool prometheus # bookworm's; later ones have it as
bring promtool promtool   # a package of its own
bring prometheus-node-exporter prometheus-node-exporter
bring prometheus-alertmanager prometheus-alertmanager # amtool is in it
relocate prometheus-alertmanager usr/share/prometheus/alertmanager
install cc gcc libc6-dev
[ "${CI:-}" = true ] && install systemd-analyze systemd
for program in promtool prometheus prometheus-node-exporter prometheus-alertmanager amtool cc systemd-analyze; do
	command -v "$program" >/dev/null || echo "missing: $program; the tests that need it are left out" >&2
done
exit 0
