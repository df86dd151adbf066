# What the scripts of each kind of package do on a node; the build puts it into each of them.
# shellcheck shell=sh
program=/opt/coldplate

# Code that is not compiled at installation would be compiled at each start: the services may not write there.
compile_program() {
	minor=$("$program/bin/python" -I -c 'import sys; print("%d.%d" % sys.version_info[:2])') || return 1
	if [ ! -d "$program/lib/python$minor" ]; then
		echo "coldplate: this package has no libraries for Python $minor, which is this node's" >&2
		return 1
	fi
	# Not the hundreds of languages that rich's highlighter knows: nothing here uses them, and they take half the time.
	(umask 022 && "$program/bin/python" -I -m compileall -q -j 4 -x '/pygments/(lexers|styles)/' \
		"$program/lib/common" "$program/lib/python$minor") || true
}

# Whether the code is compiled for this very Python.
is_compiled() {
	tag=$("$program/bin/python" -I -c 'import sys; print(sys.implementation.cache_tag)' 2>/dev/null) &&
		[ -f "$program/lib/common/agent/__pycache__/cli.$tag.pyc" ]
}

forget_compiled() {
	[ ! -d "$program/lib" ] || find "$program/lib" -name __pycache__ -prune -exec rm -rf {} +
}

# Users, and the permissions that udev and tmpfiles.d give them.
apply_permissions() {
	systemd-sysusers coldplate.conf
	if [ -d /run/systemd/system ]; then
		systemd-tmpfiles --create coldplate.conf || true
		if [ -S /run/udev/control ] && command -v udevadm >/dev/null; then
			udevadm control --reload || true
			udevadm trigger --action=change --subsystem-match=powercap --subsystem-match=ipmi || true
		fi
	fi
}
