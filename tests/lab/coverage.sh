#!/bin/sh
# Combine what the processes of `make test COVERAGE=1` measured, print it by folder, and fail below one of two floors:
# 90% of all lines, 75% of each folder. A killed process loses what it measured, so figures vary by a point or two.
set -eu
python=$1
"$python" -m coverage combine --quiet
rm -f "$COVERAGE_FILE".* # of processes that were killed while they wrote theirs
low=0
# The boards are loaded by their path, under names that coverage does not know.
for folder in $(git ls-files 'agent/*.py' 'alerts/*.py' 'dashboards/*.py' 'exporters/*.py' | sed 's|/[^/]*$||' | sort -u); do
	[ "$folder" != dashboards/boards ] || continue
	share=$("$python" -m coverage report --format=total --include="$folder/*.py")
	printf '%-40s %s%%\n' "$folder" "$share"
	[ "$share" -ge 75 ] || { echo "$folder: tests run $share% of its lines, and 75% is the floor" >&2; low=1; }
done
"$python" -m coverage report --format=total --precision=1 --fail-under=90 || { echo "tests run too few lines: the floor is 90%" >&2; low=1; }
exit $low
