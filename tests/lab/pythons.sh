#!/bin/sh
# `make test-all`: `make test` of the last commit with each Python from 3.10 to 3.14 that is on the PATH or with pyenv, in a
# checkout of its own: pythons.sh "ARGS OF PYTEST" [PYTHON...]. A version that is not found is named, and is no failure.
set -eu
tests=${1-}
[ $# -eq 0 ] || shift
if [ $# -eq 0 ]; then
	for version in 3.10 3.11 3.12 3.13 3.14; do
		for each in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python"$version"; do
			case $("$each" --version 2>/dev/null) in # a shim is there for versions that are not
			"Python $version."*) set -- "$@" "$(command -v "$each")" && continue 2 ;;
			esac
		done
		echo "test-all: SKIPPED: NOTHING was tried with Python $version: not on the PATH, nor with pyenv" >&2
	done
fi
commit=$(git rev-parse HEAD)
[ -z "$(git status --porcelain)" ] || echo "NOT tried are the uncommitted changes of this checkout" >&2
folder=$PWD/.programs/bare
export PIP_CACHE_DIR="${PIP_CACHE_DIR:-$folder/pip}"
unset MAKEFLAGS MAKELEVEL MAKEOVERRIDES MFLAGS PYTHONS
failed=
for python; do
	place=$folder/with-${python##*/}
	rm -rf "$place"
	mkdir -p "$place"
	git archive "$commit" | tar -x -C "$place"
	echo "== $python"
	make -C "$place" test PYTHON="$python" ARGS="$tests" || failed="$failed $python"
	rm -rf "$place"
done
[ -z "$failed" ] || { echo "test-all: FAILED with$failed" >&2; exit 1; }
