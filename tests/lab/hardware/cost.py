"""What sampling costs the workload: a steady load's pace with the daemon off, at 1 s and at 100 ms.

One load runs on; the daemon is started and stopped beside it, A B C A B C, so that heat and clocks drift
over all three alike. The spread of the rounds without a daemon is the noise that a difference must exceed.
"""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.lab.hardware.findings import Section, Table, quantile
from tests.lab.hardware.load import Iteration

ROOT = Path(__file__).resolve().parents[3]
MODES = ("off", "1s", "100ms")
SETTLE = 1.5
"""Seconds after a start that do not count: opening and probing, and the first samples."""
STARTS_WITHIN = 60.0
_URL = re.compile(r"http://127\.0\.0\.1:(\d+)/")
_CALLS = re.compile(r"^coldplate_driver_calls_total\{[^}]*nvml[^}]*\} (\S+)$", re.MULTILINE)


class DaemonError(Exception):
    """The daemon does not serve; the text has the end of its log."""


class Window(NamedTuple):
    """A stretch of time on CLOCK_MONOTONIC in one mode. `calls` and `cpu` are per second of the daemon's."""

    mode: str
    start: float
    end: float
    calls: float | None = None
    cpu: float | None = None


class Daemon:
    """`coldplate run` on the real devices, sampling at a period."""

    def __init__(self, period: str, directory: Path) -> None:
        config, self._log = directory / "coldplate.yaml", directory / f"daemon-{period}.log"
        state = directory / "state"
        state.mkdir(exist_ok=True)
        config.write_text(f"sampling: {{fast: {period}}}\nstate_dir: {state}\n")
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "agent.cli", "run", "--web.listen-address", "127.0.0.1:0", "--backend", "nvml",
                 "--config.file", str(config)],
                stderr=log, stdout=log, stdin=subprocess.DEVNULL, cwd=ROOT,
            )  # fmt: skip
        try:
            self._url = self._await()
        except DaemonError:
            self.stop()
            raise

    def _await(self) -> str:
        until = time.monotonic() + STARTS_WITHIN
        while time.monotonic() < until and self._process.poll() is None:
            found = _URL.search(self._log.read_text())
            if found:
                return f"http://127.0.0.1:{found[1]}/metrics"
            time.sleep(0.05)
        last = " / ".join(self._log.read_text().strip().splitlines()[-3:])
        raise DaemonError(f"the daemon does not serve: {last[:400] or 'it says nothing'}")

    def calls(self) -> float:
        """Driver calls so far. Raises DaemonError when no GPU is up."""
        with urllib.request.urlopen(self._url, timeout=10) as answer:
            page = answer.read().decode()
        if not re.search(r"^coldplate_gpu_up\{[^}]*\} 1$", page, re.MULTILINE):
            raise DaemonError("the daemon serves, but no GPU is up")
        return sum(float(each) for each in _CALLS.findall(page))

    def cpu(self) -> float:
        """Processor seconds so far, of the daemon and its worker."""
        ticks = 0
        for process in (self._process.pid, *_children(self._process.pid)):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(5)


def _children(process: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{process}/task").iterdir():
        found += [int(each) for each in (task / "children").read_text().split()]
    return found


def measure(rounds: int, seconds: float, settle: float, directory: Path, say: Callable[[str], object]) -> list[Window]:
    """Start and stop the daemon beside a running load. Raises DaemonError."""
    windows = []
    for turn in range(rounds):
        for mode in MODES:
            say(f"cost: round {turn + 1} of {rounds}, daemon {mode if mode == 'off' else f'at {mode}'}")
            windows.append(_window(mode, seconds, settle, directory))
    return windows


def _window(mode: str, seconds: float, settle: float, directory: Path) -> Window:
    daemon = None if mode == "off" else Daemon(mode, directory)
    try:
        time.sleep(settle)
        calls, cpu = (daemon.calls(), daemon.cpu()) if daemon else (0.0, 0.0)
        start = time.monotonic()
        time.sleep(seconds)
        end = time.monotonic()
        if daemon is None:
            return Window(mode, start, end)
        return Window(mode, start, end, (daemon.calls() - calls) / seconds, (daemon.cpu() - cpu) / seconds)
    finally:
        if daemon is not None:
            daemon.stop()


class Pace(NamedTuple):
    """A window's iterations per second, and their latency in seconds."""

    rate: float
    p50: float
    p99: float


def pace(window: Window, iterations: Sequence[Iteration]) -> Pace | None:
    """Iterations that lie wholly within the window; None when there are too few to say anything."""
    inside = [each.seconds for each in iterations if window.start <= each.end - each.seconds and each.end <= window.end]
    if len(inside) < 10:
        return None
    return Pace(len(inside) / (window.end - window.start), quantile(inside, 0.5), quantile(inside, 0.99))


def tell(section: Section, windows: Sequence[Window], iterations: Sequence[Iteration]) -> None:
    """Write what was measured: medians over the rounds, against those without a daemon."""
    paces = {mode: [p for w in windows if w.mode == mode and (p := pace(w, iterations))] for mode in MODES}
    if not all(paces.values()):
        section.skipped("cost for the workload", "too few iterations of the load lie within a window")
        return
    medians = {
        mode: Pace(*(statistics.median(column) for column in zip(*each, strict=True))) for mode, each in paces.items()
    }
    off = medians["off"]
    noise = (max(p.rate for p in paces["off"]) - min(p.rate for p in paces["off"])) / off.rate
    rows = []
    for mode, each in medians.items():
        calls = [w.calls for w in windows if w.mode == mode and w.calls is not None]
        cpu = [w.cpu for w in windows if w.mode == mode and w.cpu is not None]
        rows.append([mode, f"{each.rate:.1f}", f"{each.rate / off.rate - 1:+.2%}", f"{each.p50 * 1e3:.3f}",
                     f"{each.p99 * 1e3:.3f}", f"{each.p99 / off.p99 - 1:+.1%}",
                     f"{statistics.median(calls):.1f}" if calls else "-",
                     f"{statistics.median(cpu):.1%}" if cpu else "-"])  # fmt: skip
        if mode != "off":
            change = f"throughput {each.rate / off.rate - 1:+.2%}, p99 {each.p99 / off.p99 - 1:+.1%}"
            text = f"{change} against no daemon; without one the rounds differ by {noise:.2%}"
            section.measured(f"cost at {mode}", text)
    header = ("daemon", "iterations/s", "change", "p50 ms", "p99 ms", "change", "driver calls/s", "agent's CPU")
    title = f"Medians of {len(paces['off'])} rounds of {windows[0].end - windows[0].start:.0f} s"
    section.tables.append(Table(title, header, rows))
