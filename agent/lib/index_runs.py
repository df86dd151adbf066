"""Several devices in few words."""

from __future__ import annotations

from collections.abc import Iterable


def index_runs(indexes: Iterable[str]) -> str:
    """Indexes in their order, three or more in a row as the first and the last: `0-2, 5`. Others stay as they are."""
    runs: list[list[str]] = []
    for index in sorted(set(indexes), key=lambda text: (len(text), text)):
        if runs and index.isdecimal() and runs[-1][-1].isdecimal() and int(index) == int(runs[-1][-1]) + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(run) for run in runs)
