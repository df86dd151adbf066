#!/bin/bash
# What a machine must have for the checks, put into its root before it boots: the agent as `make install` puts it,
# the stand-in for the driver's library, and the checks as a unit that starts last.
# prepare.sh ROOT SOURCE LIBRARY; with PACKAGE=FILE.deb that is laid ready in its place, for the checks to install
set -euo pipefail
root=$1 source=$2 library=$3

mkdir -p "$root/usr/src/coldplate" "$root/usr/local/lib" "$root/etc/default"
(cd "$source" && cp -R Makefile pyproject.toml README.md LICENSE agent alerts dashboards exporters packaging "$root/usr/src/coldplate")
mkdir -p "$root/usr/src/coldplate/tests/lab/systemd"
cp -R "$source/tests/lab/systemd/inside" "$root/usr/src/coldplate/tests/lab/systemd"
cp "$library" "$root/usr/local/lib/libnvidia-ml.so.1"
echo COLDPLATE_FAKE_NVML=/run/stand-in/control >"$root/etc/default/coldplate"
chroot "$root" ldconfig
if [ -n "${PACKAGE:-}" ]; then
	cp "$PACKAGE" "$root/usr/src/coldplate.deb"
else
	chroot "$root" env PYTHON=/usr/bin/python3 EXTRAS=kubernetes PATH=/usr/sbin:/usr/bin:/sbin:/bin make --silent -C /usr/src/coldplate install >"$root/install.log" 2>&1 ||
		{ cat "$root/install.log"; exit 1; }
fi
cat >"$root/etc/systemd/system/checks.service" <<-UNIT
	[Unit]
	DefaultDependencies=no
	After=basic.target
	[Service]
	Type=simple
	Environment="MODULES=${MODULES:-}" PYTHONUNBUFFERED=1
	WorkingDirectory=/usr/src/coldplate/tests/lab/systemd
	ExecStart=/usr/bin/python3 -B -m inside
	StandardOutput=append:/checks.log
	StandardError=inherit
UNIT
