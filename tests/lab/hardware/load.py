"""A steady load on one GPU, in a process of its own, through whatever this machine has for it.

PyTorch or a CUDA program compiled here; `--load-command` names another. The program is called with
OUT and SECONDS, prints one line of JSON when it is warm, writes for each iteration two doubles to OUT (its end
on CLOCK_MONOTONIC and how long it took, in seconds), and ends after SECONDS or at SIGTERM.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
WARM = 90.0
"""Seconds until the first line: importing PyTorch from a cold disk takes tens of them."""
KINDS = ("auto", "torch", "cuda", "none")


class Iteration(NamedTuple):
    """One iteration of the load."""

    end: float
    seconds: float


class NoLoadError(Exception):
    """No load can be had; the text says why, for each way that was tried."""


class Load:
    """A running load."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path, about: dict[str, object]) -> None:
        self._process = process
        self._out = out
        self.description = str(about.get("load", "?"))
        self.tensor = bool(about.get("tensor", False))
        """Whether it uses the tensor cores."""

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> list[Iteration]:
        """End it; every iteration that it made."""
        _end(self._process)
        return iterations(self._out)


def iterations(path: Path) -> list[Iteration]:
    """What a load wrote; a record that was cut off is left out."""
    data = path.read_bytes() if path.exists() else b""
    return [Iteration(*pair) for pair in struct.iter_unpack("<dd", data[: len(data) // 16 * 16])]


class Loads:
    """Starts loads. The first kind that works is kept for the next time."""

    def __init__(self, kind: str, python: str | None, command: str | None, directory: Path) -> None:
        self._kind = kind
        self._python = python
        self._command = command
        self._directory = directory
        self._works: tuple[str, list[str]] | None = None
        self._number = 0

    def start(self, uuid: str, capability: str, seconds: float) -> Load:
        """Start a load on the GPU `uuid`. Raises NoLoadError."""
        if self._kind == "none" and self._command is None:
            raise NoLoadError("--load none was given")
        reasons: list[str] = []
        for name, command in [self._works] if self._works else self._candidates(capability, reasons):
            try:
                load = self._try(command, uuid, seconds)
            except NoLoadError as error:
                reasons.append(f"{name}: {error}")
            else:
                self._works = (name, command)
                return load
        raise NoLoadError("; ".join(reasons))

    def _candidates(self, capability: str, reasons: list[str]) -> list[tuple[str, list[str]]]:
        if self._command is not None:
            return [(self._command, shlex.split(self._command))]
        found = []
        pythons = list(dict.fromkeys(each for each in (self._python, sys.executable, shutil.which("python3")) if each))
        if self._kind in ("auto", "torch"):
            found += [(f"torch of {each}", [each, str(HERE / "load_torch.py")]) for each in pythons]
        if self._kind in ("auto", "cuda"):
            try:
                found.append(("cuda", [str(self._compile(capability))]))
            except NoLoadError as error:
                reasons.append(f"cuda: {error}")
        return found

    def _compile(self, capability: str) -> Path:
        compiler = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
        if compiler is None:
            raise NoLoadError("there is no nvcc")
        program = self._directory / "steady"
        target = [f"-arch=sm_{capability.replace('.', '')}"] if capability else []
        done = subprocess.run(
            [compiler, "-O3", *target, "-o", str(program), str(HERE / "steady.cu")],
            capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode != 0:
            raise NoLoadError(f"nvcc ended with {done.returncode}: {done.stderr.strip()[:200]}")
        return program

    def _try(self, command: Sequence[str], uuid: str, seconds: float) -> Load:
        self._number += 1
        out = self._directory / f"iterations-{self._number}"
        try:
            process = subprocess.Popen(
                [*command, str(out), f"{seconds:g}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                stdin=subprocess.DEVNULL, env={**os.environ, "CUDA_VISIBLE_DEVICES": uuid},
            )  # fmt: skip
        except OSError as error:
            raise NoLoadError(f"{command[0]}: {error.strerror}") from error
        line = _first_line(process)
        if line is None:
            _end(process)
            raise NoLoadError(f"not warm within {WARM:g} s")
        if not line.startswith(b"{"):
            said = _end(process).decode("utf-8", "replace").strip().splitlines()
            raise NoLoadError(
                (line.decode("utf-8", "replace").strip() or (said[-1] if said else "ended at once"))[:200]
            )
        return Load(process, out, json.loads(line))


def _first_line(process: subprocess.Popen[bytes]) -> bytes | None:
    """The first line of what it says, empty when it ended, None when it says nothing in time."""
    assert process.stdout is not None
    until, line = time.monotonic() + WARM, b""
    waiting = select.poll()  # select() takes no descriptor above 1023
    waiting.register(process.stdout, select.POLLIN | select.POLLHUP)
    while not line.endswith(b"\n"):
        if not waiting.poll(max(0.0, until - time.monotonic()) * 1000):
            return None
        part = os.read(process.stdout.fileno(), 1)
        if not part:
            break
        line += part
    return line


def _end(process: subprocess.Popen[bytes]) -> bytes:
    """End a process that we started; what it said on standard error."""
    if process.poll() is None:
        process.terminate()
    try:
        _, said = process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        _, said = process.communicate()
    return said or b""
