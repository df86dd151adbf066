"""Diagnoses as a person reads them, and as a program does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from agent.commands.doctor.diagnosis_line import Diagnosis, DoctorVerdict
from agent.lib.wording import one_line

COLOURS = {DoctorVerdict.OK: "\033[32m", DoctorVerdict.WARN: "\033[33m", DoctorVerdict.FAIL: "\033[1;31m"}
PLAIN = "\033[0m"
LONGEST = 1000


def worst(findings: Iterable[Diagnosis]) -> DoctorVerdict:
    """The verdict on all of them."""
    found = {each.verdict for each in findings}
    return next((each for each in (DoctorVerdict.FAIL, DoctorVerdict.WARN) if each in found), DoctorVerdict.OK)


def lines(findings: Sequence[Diagnosis], coloured: bool) -> Iterator[str]:
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


def document(findings: Sequence[Diagnosis]) -> str:
    """The same in JSON."""
    listed = [{**asdict(each), "verdict": each.verdict.value} for each in findings]
    return json.dumps({"verdict": worst(findings).value, "findings": listed}, indent=2)
