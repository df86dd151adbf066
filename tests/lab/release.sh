#!/bin/sh
# `make test-release`: every test there is, one program after the other; docs/dev/testing.md says what each proves.
# A step that fails does not stop the next; the last lines name what failed, and the exit status is 1 then.
set -u
failed=
step() {
	echo "== $*"
	began=$(date +%s)
	"$@" || failed="$failed
  $*"
	echo "== $(($(date +%s) - began)) s"
}
step make test ARGS="-m ''"
step .venv/bin/python -m pytest -n 2 -m '' tests/lab
step make test-all
step make parity
step make test-packages
step make test-systemd
step make test-bare
step make drill ARGS=--short
step make soak ARGS='--seconds 300 --hours 1 --dry'
step make fuzz ARGS='--seconds 30'
[ -z "$failed" ] || { echo "FAILED:$failed" >&2; exit 1; }
