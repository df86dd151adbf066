#!/bin/sh
# Puts the program of a package into a folder: one environment for whichever Python from 3.10 to 3.14 the node has.
#
#   program.sh FOLDER WHEELS PYTHON      PYTHON: the path of the node's, which bin/python leads to
#
# lib/common holds what every Python can load, lib/pythonX.Y/site-packages what is compiled for one; a Python looks into
# its own and is led from there to lib/common. WHEELS is what `tests/lab/bring wheels` fetched.
set -eu
umask 022
cd "$(dirname "$0")/.."
folder=$1 wheels=$2 node_python=$3 prefix=/opt/coldplate
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT

python() { .venv/bin/python -I "$@"; }
pip() { PIP_CONFIG_FILE=/dev/null .venv/bin/python -m pip --quiet --disable-pip-version-check "$@"; }

# A wheel is an archive of what goes into a folder of libraries: a Python that is not here need not be asked.
unpack() { # unpack FOLDER WHEEL...
	into=$1
	shift
	for wheel; do python -m zipfile -e "$wheel" "$into"; done
	if ls -d "$into"/*.data >/dev/null 2>&1; then
		echo "coldplate: $(ls -d "$into"/*.data): these files belong elsewhere, which only pip knows" >&2
		exit 1
	fi
}

product() {
	unpack "$built/tools" "$wheels"/build/*.whl
	mkdir "$built/source"
	cp -R pyproject.toml README.md LICENSE agent alerts dashboards exporters "$built/source"
	find "$built/source" -name __pycache__ -prune -exec rm -rf {} +
	PYTHONPATH=$built/tools pip wheel --no-index --no-deps --no-build-isolation --wheel-dir "$built" "$built/source"
}

# A list of files tells pip that it may change them; here they are the package's.
forget_pip() { find "$folder" -path '*.dist-info/RECORD' -exec rm -f {} +; }

environment() {
	mkdir -p "$folder/bin"
	cat >"$folder/bin/coldplate" <<-SCRIPT
		#!$prefix/bin/python
		import sys
		from agent.cli import entry
		sys.exit(entry())
	SCRIPT
	ln -s "$node_python" "$folder/bin/python"
	printf 'home = %s\ninclude-system-site-packages = false\n' "${node_python%/*}" >"$folder/pyvenv.cfg"
}

echo "building the program ..."
product
unpack "$folder/lib/common" "$wheels"/common/*.whl "$built"/coldplate-*.whl
for each in "$wheels"/3.*; do
	site=$folder/lib/python${each##*/}/site-packages
	unpack "$site" "$each"/*.whl
	echo ../../common >"$site/coldplate.pth"
done
environment
forget_pip
find "$folder" -type f -exec chmod 644 {} +
find "$folder" -type d -exec chmod 755 {} +
chmod 755 "$folder/bin/coldplate"
