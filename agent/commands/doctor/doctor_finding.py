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


def ok(text: str) -> DoctorFinding:
    return DoctorFinding("", DoctorVerdict.OK, text)


def warn(text: str, remedy: str) -> DoctorFinding:
    return DoctorFinding("", DoctorVerdict.WARN, text, remedy)


def fail(text: str, remedy: str) -> DoctorFinding:
    return DoctorFinding("", DoctorVerdict.FAIL, text, remedy)


COLOURS = {DoctorVerdict.OK: "\033[32m", DoctorVerdict.WARN: "\033[33m", DoctorVerdict.FAIL: "\033[1;31m"}
PLAIN = "\033[0m"
LONGEST = 1000


def worst(findings: Iterable[DoctorFinding]) -> DoctorVerdict:
    verdicts = {finding.verdict for finding in findings}
    return next(
        (verdict for verdict in (DoctorVerdict.FAIL, DoctorVerdict.WARN) if verdict in verdicts), DoctorVerdict.OK
    )


def lines(findings: Sequence[DoctorFinding], coloured: bool) -> Iterator[str]:
    """Yield a line for each finding, one more for its remedy, and the number of each verdict."""
    width = max((len(finding.subject) for finding in findings), default=0)
    for finding in findings:
        verdict = f"{finding.verdict.value:4}"
        verdict_text = f"{COLOURS[finding.verdict]}{verdict}{PLAIN}" if coloured else verdict
        yield f"{verdict_text}  {finding.subject:{width}}  {one_line(finding.found, LONGEST)}"
        if finding.remedy:
            yield f"{'':6}{'':{width}}  fix: {one_line(finding.remedy, LONGEST)}"
    counts = (f"{sum(finding.verdict is verdict for finding in findings)} {verdict.value}" for verdict in DoctorVerdict)
    yield f"\n{', '.join(counts)}"


def document(findings: Sequence[DoctorFinding]) -> str:
    """Return the same in JSON."""
    listed = [{**asdict(finding), "verdict": finding.verdict.value} for finding in findings]
    return json.dumps({"verdict": worst(findings).value, "findings": listed}, indent=2)
