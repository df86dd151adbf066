"""Examines every subject within a bound of time: what does not answer is a finding, and the others are still found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agent.backends.file_reader_pool import DeviceReads, FileReaderPool, UnansweredRead
from agent.commands.doctor import subjects
from agent.commands.doctor.diagnosis_line import Diagnosis, DoctorVerdict, Examination
from agent.commands.doctor.examined_node import ExaminedNode
from agent.lib.discovery import modules_in
from agent.model import Reason

PATIENCE_SECONDS = 4.0
"""Seconds that one check may take. Rules are compiled within it on a busy node; servers are given less."""
READERS = 64
"""Checks that may hang at once: adapters, receivers and files, each on its own."""


def examine(node: ExaminedNode, patience: float = PATIENCE_SECONDS) -> list[Diagnosis]:
    """All findings, in the order of the subjects."""
    modules = sorted(modules_in(subjects.__name__, subjects.__path__), key=lambda each: each.RANK)
    relay = FileReaderPool("doctor", patience, READERS)
    asked = _answers([node.meeting()], relay, node.mono())  # what the running agent says is used by many
    checks = [check for module in modules for check in module.checks(node)]
    found = [*asked, *_answers(checks, relay, node.mono())]
    relay.close()
    return found


def _answers(checks: Sequence[Examination], relay: FileReaderPool, mono: float) -> Iterable[Diagnosis]:
    """Each check is a leg of its own, as if it were a device: one that hangs holds up no other."""
    legs: list[DeviceReads[list[Diagnosis]]] = [
        DeviceReads(f"{number} {check.path}", [check]) for number, check in enumerate(checks)
    ]
    for check, (answer,) in zip(checks, relay.round(legs, mono), strict=True):
        if not isinstance(answer, UnansweredRead):
            yield from answer
        elif answer.reason is Reason.TIMEOUT:
            yield Diagnosis(
                check.subject,
                DoctorVerdict.FAIL,
                f"{check.path}: {answer.detail}",
                "look for what hangs: dmesg -T | tail; ps -eo pid,stat,wchan:30,comm | grep ' D'",
            )
        else:
            yield Diagnosis(
                check.subject,
                DoctorVerdict.WARN,
                f"{check.path} cannot be examined: {answer.detail}",
                "please report this line",
            )
