"""Texts of a report for groups of GPUs, lengths of time and shares."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from agent.lib.wording import index_runs, one_line
from agent.recording.report.run_facts import GpuFacts


def format_gpus(gpus: Iterable[GpuFacts]) -> str:
    """Return the names of GPUs: `GPU 3`, `GPUs 0-3, 7`, `GPUs 0-7 of node-1; 2 of node-2`."""
    listed = list(gpus)
    by_node = [(name, list(group)) for name, group in groupby(listed, key=lambda gpu: gpu.node.name)]
    named = any(gpu.title != gpu.gpu.index for gpu in listed)
    texts = [
        ranges([gpu.gpu.index for gpu in group]) + (f" of {one_line(name, 64)}" if named else "")
        for name, group in by_node
    ]
    return ("GPU " if len(listed) == 1 else "GPUs ") + "; ".join(texts)


def ranges(indexes: Sequence[str]) -> str:
    """Return numbers that follow each other as ranges: `0-3, 7`."""
    return index_runs((one_line(index, 32) for index in indexes), shortest=2)


def span_text(seconds: float) -> str:
    """Return a length of time for people: `12 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if seconds < 10 and seconds != int(seconds):
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for big, small, size, rest in (("d", "h", 86400, 3600), ("h", "min", 3600, 60), ("min", "s", 60, 1)):
        if whole >= size:
            more = whole % size // rest
            return f"{whole // size} {big}" + (f" {more} {small}" if more else "")
    return f"{whole} s"


def share_text(share: float) -> str:
    """Return a share in per cent; 0 and 100 only if exact."""
    if 0 < share <= 0.005:
        return "under 1%"
    return "over 99%" if 0.995 <= share < 1 else f"{share:.0%}"
