"""What a measurement says, the table in which it stands, and the lines that tell what is going on meanwhile."""

import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from importlib import metadata
from pathlib import Path
from typing import NamedTuple


class Verdict(Enum):
    MET = "met"
    MISSED = "MISSED"
    NONE = ""
    NOT_RUN = "NOT RUN"


class Line(NamedTuple):
    """One figure. `target` is empty where there is none."""

    what: str
    result: str
    target: str = ""
    verdict: Verdict = Verdict.NONE


class Section(NamedTuple):
    title: str
    lines: tuple[Line, ...]

    @property
    def complete(self) -> bool:
        return all(line.verdict is not Verdict.NOT_RUN for line in self.lines)


class CannotRunError(Exception):
    """Something that a measurement needs is not here; the text says what, and how to get it."""


def at_most(what: str, value: float, limit: float, show: Callable[[float], str]) -> Line:
    return Line(what, show(value), f"<= {show(limit)}", Verdict.MET if value <= limit else Verdict.MISSED)


def at_least(what: str, value: float, limit: float, show: Callable[[float], str]) -> Line:
    return Line(what, show(value), f">= {show(limit)}", Verdict.MET if value >= limit else Verdict.MISSED)


def times(value: float) -> str:
    """A ratio, to three digits that count."""
    return f"{value:.3g} x" if value < 100 else f"{value:.0f} x"


def percent(value: float) -> str:
    return f"{value:.2f} %"


def mebibytes(value: float) -> str:
    return f"{value:.1f} MiB"


def count(value: float) -> str:
    return f"{value:,.0f}"


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"


def table(sections: Sequence[Section]) -> str:
    lines = [line for section in sections for line in section.lines]
    rows = iter(
        columns([(f"  {line.what}", line.result, line.target, line.verdict.value) for line in lines]).split("\n")
    )
    return "\n".join(f"\n{section.title}\n" + "\n".join(next(rows) for _ in section.lines) for section in sections)


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as text, each column as wide as its widest cell but for the last."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, [*widths, 0], strict=True)).rstrip() for row in rows
    )


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (f"| {' | '.join(row)} |\n" for row in (head, *rows))
    return next(lines) + f"|{'---|' * len(head)}\n" + "".join(lines)


def between(document: str, begins: str, ends: str, text: str) -> str:
    """Return the document with this text between two marks. Raises ValueError unless each of them is there once."""
    if document.count(begins) != 1 or document.count(ends) != 1:
        raise ValueError(f"the lines {begins!r} and {ends!r} say where the table goes: put them back")
    return f"{document.split(begins)[0]}{begins}\n\n{text.strip()}\n\n{ends}{document.split(ends)[1]}"


def put_generated(document: str, name: str, content: str) -> str:
    """Return the document with the content that `make generate` makes for this name. As `between`."""
    return between(document, f"<!-- {name}: made by `make generate` -->", f"<!-- {name}: end -->", content)


def put_between(document: Path, begins: str, ends: str, text: str) -> None:
    document.write_text(between(document.read_text(encoding="utf-8"), begins, ends, text), encoding="utf-8")


class Progress:
    """Says on standard error what is being measured, and how far the whole run is."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._began:4.0f} s] {text}", file=sys.stderr, flush=True)


def guarded(main: Callable[[Sequence[str]], int], cannot_run: int = 1) -> int:
    """The exit status of a program that may be stopped, or lack something; what it has started is ended either way.

    SIGTERM and SIGHUP end it as Ctrl-C does. `cannot_run` is the status where something was not to be had.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        return main(sys.argv[1:])
    except KeyboardInterrupt:
        print("stopped; every program that was started has been ended", file=sys.stderr)
        return 130
    except CannotRunError as error:
        print(f"could not run: {error}", file=sys.stderr)
        return cannot_run


def description() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if "model name" in line), "unknown")
    load = ", ".join(f"{each:.2f}" for each in os.getloadavg())
    return (
        f"{os.cpu_count()} processors ({model}), Linux {platform.release()}, "
        f"Python {platform.python_version()}; load average at the end {load}"
    )


def peers() -> str:
    found = {each.name: each.version for each in metadata.distributions(name="nvitop-exporter")}
    program = shutil.which("prometheus-node-exporter")
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False) if program else None
    version = re.search(r"version ([0-9.]+)", done.stdout + done.stderr) if done else None
    exporter = version[1] if version else "(missing)"
    return f"beside nvitop-exporter {found.get('nvitop-exporter', '(missing)')}, node_exporter {exporter}"
