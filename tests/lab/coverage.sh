#!/bin/sh
# Combine what the processes of `make test COVERAGE=1` measured, print it by folder, and fail below one of two floors:
# 90% of all lines, 75% of each folder. A killed process loses what it measured, so figures vary by a point or two.
set -eu
python=$1
"$python" -m coverage combine --quiet
rm -f "$COVERAGE_FILE".* # of processes that were killed while they wrote theirs
# One report, added up here: for each report that it makes, coverage reads the source of every file.
report=$("$python" -m coverage report)
{ git ls-files 'agent/*.py' 'alerts/*.py' 'dashboards/*.py' 'exporters/*.py'; echo "$report"; } | awk '
	$1 !~ /\.py$/ { next }
	{ folder = $1; sub(/\/[^\/]*$/, "", folder); lines[folder] += $2; missed[folder] += $3; all += $2; without += $3 }
	NF > 1 { reported[folder] = 1 }
	END {
		for (folder in lines) {
			# The boards are loaded by their path, under names that coverage does not know.
			if (folder == "dashboards/boards") continue
			share = lines[folder] ? 100 - 100 * missed[folder] / lines[folder] : 100 * reported[folder]
			low = share < 75 ? "  below the floor of 75%" : ""
			if (low) failed = 1
			printf "%-40s %.0f%%%s\n", folder, share, low | "sort"
		}
		close("sort")
		share = all ? 100 - 100 * without / all : 0
		if (share < 90) failed = 1
		printf "%-40s %.1f%%%s\n", "all", share, share < 90 ? "  below the floor of 90%" : ""
		exit failed
	}'
