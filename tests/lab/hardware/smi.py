"""nvidia-smi as a second opinion: asks it for CSV fields and for the XML document, and reads its answers.

Which fields there are depends on its version: it is asked first (`--help-query-gpu`), and a field that it
refuses none the less is left out. It is given no option that changes a setting.
"""

from __future__ import annotations

import csv
import re
import subprocess
from collections.abc import Sequence
from xml.etree import ElementTree

TIMEOUT = 60.0
"""Seconds for one run; without persistence mode it wakes every GPU first."""

_REFUSED = re.compile(r'Field "([^"]+)" is not a valid field to query')
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_WORDS = {"yes": 1.0, "no": 0.0, "enabled": 1.0, "disabled": 0.0, "active": 1.0, "not active": 0.0}

_ABSENT = {"", "n/a", "none", "unknown", "unknown error", "gpu requires reset", "gpu is lost"}


class SmiError(Exception):
    """nvidia-smi cannot be used; the text says why."""


class Smi:
    """One nvidia-smi program."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._refused: set[str] = set()
        self._known: frozenset[str] | None = None

    def _run(self, *arguments: str) -> tuple[int, str]:
        try:
            done = subprocess.run(
                [self._program, *arguments], capture_output=True, text=True, timeout=TIMEOUT, check=False,
                stdin=subprocess.DEVNULL, errors="replace",
            )  # fmt: skip
        except OSError as error:
            raise SmiError(f"{self._program} cannot be started: {error.strerror}") from error
        except subprocess.TimeoutExpired as error:
            raise SmiError(f"{self._program} {' '.join(arguments)[:40]} did not end within {TIMEOUT:g} s") from error
        return done.returncode, done.stdout if done.returncode == 0 else done.stdout + done.stderr

    @property
    def known(self) -> frozenset[str]:
        """The CSV fields that this version offers; none when it does not say."""
        if self._known is None:
            code, text = self._run("--help-query-gpu")
            self._known = frozenset(re.findall(r'"([A-Za-z0-9_.]+)"', text)) if code == 0 else frozenset()
        return self._known

    def offered(self, names: Sequence[str]) -> str | None:
        """The first of these alternative fields that it does not refuse."""
        for name in names:
            if name not in self._refused and (not self.known or name in self.known):
                return name
        return None

    def query(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """For each GPU by UUID, the text of each field. Raises SmiError."""
        wanted = [name for name in dict.fromkeys(("uuid", *names)) if name not in self._refused]
        while True:
            code, text = self._run(f"--query-gpu={','.join(wanted)}", "--format=csv,noheader,nounits")
            if code == 0:
                break
            refused = _REFUSED.search(text)
            if refused is None or refused[1] not in wanted:
                raise SmiError(f"{self._program} ended with {code}: {text.strip()[:200]}")
            self._refused.add(refused[1])
            wanted.remove(refused[1])
        rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines(), skipinitialspace=True) if row]
        if any(len(row) != len(wanted) for row in rows):
            raise SmiError(f"{self._program} gave rows that are not {len(wanted)} fields wide: {text.strip()[:200]}")
        return {row[0]: dict(zip(wanted, row, strict=True)) for row in rows}

    def document(self) -> dict[str, ElementTree.Element]:
        """For each GPU by UUID, its element of `nvidia-smi -q -x`. Raises SmiError."""
        code, text = self._run("-q", "-x")
        if code != 0:
            raise SmiError(f"{self._program} -q -x ended with {code}: {text.strip()[:200]}")
        try:
            root = ElementTree.fromstring(text)
        except ElementTree.ParseError as error:
            raise SmiError(f"{self._program} -q -x gave no XML: {error}") from error
        return {gpu.findtext("uuid", "").strip(): gpu for gpu in root.findall("gpu")}


def is_absent(text: str | None) -> bool:
    """Whether it says that there is no value: N/A, [Not Supported], [Insufficient Permissions], ..."""
    if text is None:
        return True
    bare = text.strip().strip("[]").strip().lower()
    if bare in _WORDS:
        return False
    return bare in _ABSENT or bare.startswith(("not ", "insufficient", "deprecated", "requested functionality"))


def number(text: str) -> float | None:
    """The number in `72.00 W`, `16x`, `0x4`, `No` or `Not Active`; None when there is none."""
    bare = text.strip().lower()
    if bare in _WORDS:
        return _WORDS[bare]
    if bare.startswith("0x"):
        try:
            return float(int(bare, 16))
        except ValueError:
            return None
    match = _NUMBER.match(bare)
    return float(match[0]) if match else None
