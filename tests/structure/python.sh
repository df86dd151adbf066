#!/bin/sh
case "$*" in
*version_info*) ;;
*realpath*) echo "${BASE:-/usr}" ;;
"-m venv --clear "*)
    mkdir -p "$4/bin" "$4/lib"
    cp "$0" "$4/bin/python"
    echo "command = $4" >"$4/pyvenv.cfg" ;;
*"-m pip install "*"[broken]"*) exit 1 ;;
*"-m pip install "*) echo "#!$0" >"${0%/*}/coldplate" ;;
*"-m compileall "*) ;;
--version) echo Python 3.12.0 ;;
esac
