#!/bin/sh
# Run in a bare root by trial.py: the packages beside this file, installed, used, upgraded and removed.
set -u
cd /mnt/out || exit 1
failed=0

ok() { echo "ok   $SUITE: $1"; }
bad() {
	echo "FAIL $SUITE: $1"
	failed=1
}
see() { # see WHAT COMMAND...: whether a command ends well; its last lines where it does not
	what=$1
	shift
	if "$@" >/mnt/out/log 2>&1; then ok "$what"; else bad "$what: $(tail -n 3 /mnt/out/log | tr '\n' ' ')"; fi
}

works() { # works COMMAND: what somebody would try first
	"$1" --version && "$1" once --backend synthetic | grep -q '^coldplate_gpu_up{.*} 1' &&
		"$1" check --backend synthetic | grep -q 'COLDPLATE OK' && serves "$1"
}
serves() { # a daemon that answers, and ends when it is told to
	"$1" run --backend synthetic --web.listen-address 127.0.0.1:19555 &
	daemon=$!
	python3 -I - <<-'ASK'
		import sys, time, urllib.request
		for _ in range(300):
		    try:
		        page = urllib.request.urlopen("http://127.0.0.1:19555/metrics", timeout=5).read()
		        sys.exit(b"coldplate_gpu_up{" not in page)
		    except OSError:
		        time.sleep(0.1)
		sys.exit(1)
	ASK
	answered=$?
	kill "$daemon" && wait "$daemon"
	return "$answered"
}
compiled() { find /opt/coldplate/lib -name '*.pyc' | grep -q .; }
left() { find / -xdev -path /mnt -prune -o -path /var/log -prune -o -path /var/lib/dpkg -prune -o -name '*coldplate*' -print; }

single() { XDG_CACHE_HOME=/mnt/out/cache && export XDG_CACHE_HOME && works ./*.pyz; }
apt_installs() { apt-get -qq -y --no-install-recommends install ./*.deb; }
upgraded() { # the same package as a newer version, over an edited configuration
	dpkg-deb --raw-extract ./*.deb /var/tmp/tree && sed -i 's/^Version: .*/Version: 9.1/' /var/tmp/tree/DEBIAN/control &&
		dpkg-deb -Znone --build /var/tmp/tree /var/tmp/newer.deb && rm -rf /var/tmp/tree &&
		sed -i 's/#slow: 15s/slow: 5s/' /etc/coldplate/coldplate.yaml && dpkg --install /var/tmp/newer.deb &&
		grep -q 'slow: 5s' /etc/coldplate/coldplate.yaml && dpkg-query -W coldplate | grep -q 9.1 && compiled
}
removed() { dpkg --remove coldplate && [ -f /etc/coldplate/coldplate.yaml ] && [ ! -e /opt/coldplate ] && getent passwd coldplate; }
purged() {
	mkdir -p /var/lib/coldplate && dpkg --purge coldplate && rm -f /var/tmp/newer.deb && found=$(left)
	if [ -n "$found" ]; then echo "left: $found"; return 1; fi
	! getent passwd coldplate && ! getent group coldplate-broker
}
refused() { # where `make install` has been before
	mkdir -p /opt/coldplate/bin && touch /opt/coldplate/bin/coldplate
	! dpkg --install ./*.deb && rm -r /opt/coldplate && dpkg --purge coldplate
}
# Without plugins: they want to unshare what a container may not. Without its names for what Debian names otherwise.
rpm_installs() { apt-get -qq -y --no-install-recommends install rpm && rpm --noplugins --install --nodeps ./*.rpm && compiled && works /usr/bin/coldplate; }
rpm_upgrades() {
	sed -i 's/#slow: 15s/slow: 5s/' /etc/coldplate/coldplate.yaml && rpm --noplugins --upgrade --nodeps --force ./*.rpm &&
		grep -q 'slow: 5s' /etc/coldplate/coldplate.yaml && compiled && works /usr/bin/coldplate
}
rpm_is_gone() { rpm --noplugins --erase --nodeps coldplate && [ ! -e /opt/coldplate ] && [ -f /etc/coldplate/coldplate.yaml.rpmsave ]; }

see "single file" single
apt-get -qq update >/mnt/out/log 2>&1 || bad "apt-get update: $(tail -n 2 /mnt/out/log)"
see "Debian package: refused beside make install" refused
see "Debian package: installed by apt" apt_installs
see "Debian package: it works" works /usr/bin/coldplate
see "Debian package: code is compiled" compiled
see "Debian package: upgraded" upgraded
see "Debian package: removed" removed
see "Debian package: purged" purged
see "RPM: installed" rpm_installs
see "RPM: upgraded" rpm_upgrades
see "RPM: erased" rpm_is_gone
exit "$failed"
