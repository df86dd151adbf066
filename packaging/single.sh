#!/bin/sh
# Builds coldplate-VERSION-MACHINE.pyz, one file that runs without being installed: `make single`.
#
#   single.sh WHEELS MACHINE OUT      MACHINE: x86_64 or aarch64
set -eu
umask 022
cd "$(dirname "$0")/.."
wheels=$1 machine=$2 out=$3
. packaging/release.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

sh packaging/program.sh "$tree" "$wheels" /usr/bin/python3
mkdir -p "$out"
file=$out/coldplate-$version-$machine.pyz
echo "packing $file ..."
.venv/bin/python -I tests/lab/bring/single_file.py "$tree" "$machine" "$file"
echo "built      $file ($(du -k "$file" | cut -f1) KB)"
