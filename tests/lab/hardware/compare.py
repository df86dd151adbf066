"""nvidia-smi as a second opinion: asks it for CSV fields and for the XML document, and reads its answers.

Which fields there are depends on its version, which is asked first (`--help-query-gpu`). It is given no option that
changes a setting.
"""

import csv
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from agent.backends.nvml.gpu_enumeration import slot_of
from agent.model import GpuIdentity
from tests.lab.hardware.node import LANES, Key, Node, families, reasons_of, values_of
from tests.lab.hardware.rows import FACTS, ROWS, Fact, Row, Section

TIMEOUT = 60.0
"""Seconds for one run; without persistence mode it wakes every GPU first."""

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_WORDS = {"yes": 1.0, "no": 0.0, "enabled": 1.0, "disabled": 0.0, "active": 1.0, "not active": 0.0}

_ABSENT = {"", "n/a", "none", "unknown", "unknown error", "gpu requires reset", "gpu is lost"}


class SmiError(Exception):
    """nvidia-smi cannot be used; the text says why."""


class Smi:
    def __init__(self, program: str) -> None:
        """Raises SmiError where the program cannot be started."""
        self._program = program
        code, text = self._run("--help-query-gpu")
        self._known = frozenset(re.findall(r'"([A-Za-z0-9_.]+)"', text)) if code == 0 else frozenset()

    def _run(self, *arguments: str) -> tuple[int, str]:
        try:
            done = subprocess.run(
                [self._program, *arguments],
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                check=False,
                stdin=subprocess.DEVNULL,
                errors="replace",
            )
        except OSError as error:
            raise SmiError(f"{self._program} cannot be started: {error.strerror}") from error
        except subprocess.TimeoutExpired as error:
            raise SmiError(f"{self._program} {' '.join(arguments)[:40]} did not end within {TIMEOUT:g} s") from error
        return done.returncode, done.stdout if done.returncode == 0 else done.stdout + done.stderr

    def offered(self, names: Sequence[str]) -> str | None:
        """The first of these alternative fields that this version has; the first one where it does not say."""
        return next((name for name in names if not self._known or name in self._known), None)

    def query(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """For each GPU by UUID, the text of each field. Raises SmiError."""
        wanted = list(dict.fromkeys(("uuid", *names)))
        code, text = self._run(f"--query-gpu={','.join(wanted)}", "--format=csv,noheader,nounits")
        if code != 0:
            raise SmiError(f"{self._program} ended with {code}: {text.strip()[:200]}")
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


ROUNDS = 3
RANK = ("same", "near", "absent on both", "only coldplate", "only nvidia-smi", "differs")
"""Verdicts, the best first."""
BAD = frozenset({"differs", "only nvidia-smi"})
"""What nvidia-smi alone has is a value that coldplate misses. What coldplate alone has, nvidia-smi is too old for."""

UNITS = (1000.0, 1024.0, 1e6, 1e-3, 1 / 1024.0, 1e-6)
"""Factors that smell of a unit."""
HEADER = ("value", "coldplate", "nvidia-smi", "unit", "difference", "tolerance", "verdict")


class Line(NamedTuple):
    value: str
    coldplate: str
    smi: str
    unit: str
    difference: str
    tolerance: str
    verdict: str


class Seen(NamedTuple):
    """One look at a GPU: values, and why there are none."""

    values: dict[Key, float]
    reasons: dict[str, str]


def look(node: Node) -> list[Seen]:
    found = []
    for gpu in range(len(node.channels)):
        seen = Seen({}, {})
        for sample in (node.read(gpu, lane) for lane in LANES):
            seen.values.update(values_of(sample))
            seen.reasons.update(reasons_of(sample))
        found.append(seen)
    return found


def judge_number(row: Row, before: float | None, after: float | None, text: str | None) -> Line:
    """One row of one GPU; `before` and `after` in coldplate's unit, `text` as nvidia-smi gave it."""
    ours = [value * row.factor for value in (before, after) if value is not None]
    theirs = None if text is None or is_absent(text) else number(text)
    tolerance = row.step + row.slack + (row.relative * abs(theirs) if theirs is not None else 0.0)
    if not ours or theirs is None:
        verdict = "only coldplate" if ours else "only nvidia-smi" if theirs is not None else "absent on both"
        shown = _span(ours) if ours else "-"
        return Line(row.title, shown, (text or "not offered").strip(), row.unit, "", "", verdict)
    low, high = min(ours), max(ours)
    off = max(low - theirs, theirs - high, 0.0)
    verdict = "same" if off <= row.step else "near" if off <= tolerance else "differs"
    if verdict == "differs" and theirs:
        of_units = (each for each in UNITS if abs(ours[-1] / theirs / each - 1) < 0.01)
        verdict += "".join(f" (by a factor of {each:g}: a unit?)" for each in of_units)
    return Line(row.title, _span(ours), _plain(theirs), row.unit, _plain(off), _plain(tolerance), verdict)


def _plain(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _span(values: list[float]) -> str:
    low, high = _plain(min(values)), _plain(max(values))
    return low if low == high else f"{low} to {high}"


def judge_text(title: str, ours: str, theirs: str | None) -> Line:
    """An identifier: the same but for the case of letters."""
    if is_absent(theirs) or not ours:
        verdict = "only coldplate" if ours else "absent on both" if is_absent(theirs) else "only nvidia-smi"
        return Line(title, ours or "-", (theirs or "not offered").strip(), "", "", "", verdict)
    same = ours.lower() == str(theirs).strip().lower()
    return Line(title, ours, str(theirs).strip(), "", "", "", "same" if same else "differs")


def fact_of(identity: GpuIdentity, name: str) -> str:
    own = {
        "index": identity.gpu.index,
        "uuid": identity.gpu.uuid,
        "serial": identity.serial,
        "slot": identity.slot,
        "model": identity.model,
    }
    return own[name] if name in own else dict(identity.facts).get(name, "")


def _their_fact(fact: Fact, smi: Smi, answers: Mapping[str, str], element: ElementTree.Element | None) -> str | None:
    if fact.xml:
        return _below(element, (fact.xml,))
    field = smi.offered(fact.csv)
    text = answers.get(field) if field else None
    if fact.name == "slot" and text is not None and not is_absent(text):
        return slot_of(text)
    return text


class Comparison:
    """All rounds."""

    def __init__(self, node: Node, smi: Smi) -> None:
        self._node, self._smi = node, smi
        self.lines: list[dict[str, Line]] = [{} for _ in node.channels]
        self.trouble = ""
        """Why the XML document could not be had; what it alone tells is not compared then."""

    def run(self) -> None:
        """Raises SmiError."""
        for attempt in range(ROUNDS):
            if attempt:
                time.sleep(0.5)
            self._round()
            if not {_verdict(line) for gpu in self.lines for line in gpu.values()} & {*BAD, "near"}:
                return

    def _round(self) -> None:
        first = look(self._node)
        wanted = [name for row in (*ROWS, *FACTS) if row.csv and (name := self._smi.offered(row.csv))]
        answers = self._smi.query(wanted)
        second = look(self._node)
        try:
            document = self._smi.document()
        except SmiError as error:
            document, self.trouble = {}, str(error)
        third = look(self._node)
        for gpu, identity in enumerate(self._node.identities):
            uuid = identity.gpu.uuid
            csv, element = answers.get(uuid, {}), document.get(uuid)
            for fact in FACTS:
                ours = fact_of(identity, fact.name)
                self._keep(gpu, judge_text(fact.title, ours, _their_fact(fact, self._smi, csv, element)))
            for row in ROWS:
                field = self._smi.offered(row.csv) if row.csv else None
                text = csv.get(field) if field else None
                pair = (first, second)
                if row.xml and is_absent(text):
                    text, pair = _below(element, row.xml), (second, third)
                before, after = (seen[gpu].values.get((row.metric, row.labels)) for seen in pair)
                self._keep(gpu, judge_number(row, before, after, text), pair[1][gpu].reasons.get(row.metric))

    def _keep(self, gpu: int, line: Line, reason: str | None = None) -> None:
        if reason is not None and line.coldplate == "-":
            line = line._replace(coldplate=f"- ({reason})")
        known = self.lines[gpu].get(line.value)
        if known is None or RANK.index(_verdict(line)) < RANK.index(_verdict(known)):
            self.lines[gpu][line.value] = line

    def tell(self, section: Section) -> None:
        compared = {row.metric for row in ROWS}
        if self.trouble:
            section.skipped("values of nvidia-smi -q -x", self.trouble)
        for gpu, lines in enumerate(self.lines):
            name = f"GPU {self._node.identities[gpu].gpu.index}"
            section.table(f"{name}, compared with nvidia-smi", HEADER, lines.values())
            counts = {rank: sum(_verdict(line) == rank for line in lines.values()) for rank in RANK}
            bad = [
                f"{line.value} (coldplate {line.coldplate}, nvidia-smi {line.smi} {line.unit}: {line.verdict})"
                for line in lines.values()
                if _bad(line)
            ]
            text = ", ".join(f"{number} {rank}" for rank, number in counts.items() if number)
            section.judge(f"{name} agrees with nvidia-smi", not bad, text + ("".join(f"; {each}" for each in bad)))
        rest = sorted(set(families([self._node.read(0, lane) for lane in LANES])) - compared)
        section.measured(
            "not compared", "nvidia-smi has no such value, or none that can be read once: " + ", ".join(rest)
        )


def _bad(line: Line) -> bool:
    """A GPU that nvidia-smi does not list at all has no value there, and that is no agreement."""
    return _verdict(line) in BAD or (line.value == "UUID" and _verdict(line) != "same")


def _verdict(line: Line) -> str:
    return line.verdict.partition(" (")[0]


def _below(element: ElementTree.Element | None, paths: tuple[str, ...]) -> str | None:
    """The text at the first of these paths that is there."""
    texts = (element.findtext(path) for path in paths) if element is not None else ()
    return next((text for text in texts if text is not None), None)
