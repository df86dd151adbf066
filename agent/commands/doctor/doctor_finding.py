"""The findings of doctor, and their output as text and JSON."""

import json
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum

from msgspec import Struct
from msgspec.structs import asdict

from agent.lib.wording import one_line


class DoctorVerdict(Enum):
    """How bad it is: FAIL is what keeps the agent from its work, WARN what it misses, or may miss."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


class DoctorFinding(Struct, frozen=True):
    """A finding. `remedy` is the command or the edit that fixes it; empty if nothing is wrong.

    The runner of the checks fills in the subject.
    """

    subject: str
    verdict: DoctorVerdict
    found: str
    remedy: str = ""


def ok(found: str) -> DoctorFinding:
    return DoctorFinding("", DoctorVerdict.OK, found)


def warn(found: str, remedy: str) -> DoctorFinding:
    return DoctorFinding("", DoctorVerdict.WARN, found, remedy)


def fail(found: str, remedy: str) -> DoctorFinding:
    return DoctorFinding("", DoctorVerdict.FAIL, found, remedy)


COLOURS = {DoctorVerdict.OK: "\033[32m", DoctorVerdict.WARN: "\033[33m", DoctorVerdict.FAIL: "\033[1;31m"}
PLAIN = "\033[0m"
LONGEST = 1000


def worst(findings: Iterable[DoctorFinding]) -> DoctorVerdict:
    found = {each.verdict for each in findings}
    return next((each for each in (DoctorVerdict.FAIL, DoctorVerdict.WARN) if each in found), DoctorVerdict.OK)


def lines(findings: Sequence[DoctorFinding], coloured: bool) -> Iterator[str]:
    """Yield a line for each finding, one more for its remedy, and the number of each verdict."""
    width = max((len(each.subject) for each in findings), default=0)
    for each in findings:
        verdict = f"{each.verdict.value:4}"
        shown = f"{COLOURS[each.verdict]}{verdict}{PLAIN}" if coloured else verdict
        yield f"{shown}  {each.subject:{width}}  {one_line(each.found, LONGEST)}"
        if each.remedy:
            yield f"{'':6}{'':{width}}  fix: {one_line(each.remedy, LONGEST)}"
    counts = (f"{sum(each.verdict is verdict for each in findings)} {verdict.value}" for verdict in DoctorVerdict)
    yield f"\n{', '.join(counts)}"


def document(findings: Sequence[DoctorFinding]) -> str:
    """Return the same in JSON."""
    listed = [{**asdict(each), "verdict": each.verdict.value} for each in findings]
    return json.dumps({"verdict": worst(findings).value, "findings": listed}, indent=2)
